"""A run directory as the report reads it: settings, tables, frozen monitors. Files only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from sentinel import tables
from sentinel.errors import UserError
from sentinel.report.load_cascade import Cascade, cascades

WANTED: dict[str, tuple[str, ...]] = {
    # Only what the page shows: transcripts and token ids stay on disk.
    "tasks": ("benchmark", "task_id", "group", "pool", "answerable"),
    "episodes": (
        "benchmark",
        "agent",
        "episode_id",
        "task_id",
        "end",
        "turns",
        "generated_tokens",
        "prompt_tokens",
        "seconds",
        "engine",
    ),
    "labels": (
        "benchmark",
        "agent",
        "episode_id",
        "label",
        "correct",
        "source",
        "version",
        "error",
    ),
    "scores": ("benchmark", "agent", "t", "head", "truncated"),
    "intervals": tuple(tables.INTERVALS.columns),
    "cascade_margins": tuple(tables.CASCADE_MARGINS.columns),
    "audit": tuple(tables.AUDIT.columns),
    "feature_screen": tuple(tables.FEATURE_SCREEN.columns),
}
AGAIN = "let its stage make it again: sentinel run --run-dir DIR"


@dataclass(frozen=True, slots=True)
class Monitor:
    """What was fitted for one agent on one benchmark: frozen thresholds, and their evaluation."""

    benchmark: str
    agent: str
    policy: Mapping[str, Any]
    evaluation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """Everything the page is built from."""

    path: Path
    config: Mapping[str, Any]
    env: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    tables: Mapping[str, pa.Table]
    monitors: Sequence[Monitor]
    cascades: Sequence[Cascade] = ()
    encoder_rule: Mapping[str, Any] = field(default_factory=dict)
    """`encoder_rule.json`, where encoders were compared."""

    def table(self, name: str) -> pa.Table:
        """The wanted columns of a table; no rows when the run has not made it."""
        found = self.tables.get(name)
        return tables.ALL[name].empty().select(list(WANTED[name])) if found is None else found

    def place(self, benchmark: str, agent: str) -> tuple[int, str, int, str]:
        """A sort key: the order in which the config names benchmarks and agents, then names."""

        def index(kind: str, name: str) -> int:
            items = self.config.get(kind)
            listed = items if isinstance(items, list) else []
            names = [item.get("name") for item in listed if isinstance(item, dict)]
            return names.index(name) if name in names else len(names)

        return index("benchmarks", benchmark), benchmark, index("agents", agent), agent


def load(run_dir: Path) -> Run:
    """Read a run directory. Parts that are not there are empty; a damaged file is a UserError."""
    if not (run_dir / "config.json").is_file():
        raise UserError(
            f"{run_dir} is not a run directory (no config.json)",
            "name a folder made by `sentinel run CONFIG`",
        )
    run = Run(
        path=run_dir,
        config=_json(run_dir / "config.json"),
        env=_json(run_dir / "env.json") if (run_dir / "env.json").is_file() else {},
        metrics=_lines(run_dir / "metrics.jsonl"),
        tables={name: t for name in WANTED if (t := _table(run_dir, name)) is not None},
        monitors=_monitors(run_dir),
        cascades=cascades(run_dir),
        encoder_rule=_json(rule) if (rule := run_dir / "encoder_rule.json").is_file() else {},
    )
    ordered = sorted(run.monitors, key=lambda m: run.place(m.benchmark, m.agent))
    found = sorted(run.cascades, key=lambda c: run.place(c.benchmark, c.agent))
    return replace(run, monitors=ordered, cascades=found)


def _monitors(run_dir: Path) -> list[Monitor]:
    found = []
    for path in sorted((run_dir / "monitor").glob("*/*/policy.json")):
        policy = _json(path)
        beside = path.with_name("evaluation.json")
        evaluation = _json(beside) if beside.is_file() else {}
        found.append(
            Monitor(
                # Folder names may be escaped; the names inside the files are the names.
                benchmark=str(policy.get("benchmark", unquote(path.parent.parent.name))),
                agent=str(policy.get("agent", path.parent.name)),
                policy=policy,
                evaluation=evaluation,
            )
        )
    return found


def _table(run_dir: Path, name: str) -> pa.Table | None:
    parts = sorted((run_dir / "tables" / name).rglob("*.parquet"))
    if not parts:
        return None
    wanted = list(WANTED[name])
    schema = pa.schema([tables.ALL[name].schema.field(c) for c in wanted])
    read = []
    for part in parts:
        try:
            # Opened here, so that no name is taken for a URI or a partition.
            with part.open("rb") as file, pq.ParquetFile(file) as parquet:
                read.append(parquet.read(columns=wanted).select(wanted).cast(schema))
        except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, OSError, ValueError) as error:
            raise UserError(
                f"table {name}: {part} cannot be read ({error})",
                f"let its stage make it again: sentinel run --run-dir '{run_dir}'",
            ) from error
    return pa.concat_tables(read)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        cause = f"{path} cannot be read ({error})"
        raise UserError(cause, "let its stage make it again: sentinel run --run-dir DIR") from error
    if not isinstance(value, dict):
        raise UserError(
            f"{path} holds no JSON object",
            "let its stage make it again: sentinel run --run-dir DIR",
        )
    return value


def _lines(path: Path) -> list[dict[str, Any]]:
    """Records of a metrics file; a line cut short by a kill costs that line."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
