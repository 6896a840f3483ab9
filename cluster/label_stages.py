"""What workers do in the label stage: gold results, verdicts, features.

Every function takes one small item and reads its inputs from the run directory, so that memory is
bounded by the part and not by the run. The driver commits what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.head_stages import Where, read_episodes, read_tasks
from sentinel.tables import FEATURE_ROWS, LABELS

LABEL, GOLDS = "label", "golds"

GOLD_SCHEMA = pa.schema(
    [
        ("task_id", pa.string()),
        ("result", pa.string()),  # sentinel.sql.result.Result as JSON, its error included
        ("ordered", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class GoldItem:
    """All reference queries of one benchmark. `execute=False`: they are done, read the schema."""

    where: Where
    settings: Mapping[str, Any]
    cache: str
    execute: bool = True


@dataclass(frozen=True)
class LabelItem:
    """Episodes of one agent to label and to measure. `schema` is None where actions are no SQL."""

    where: Where
    name: str
    episodes: tuple[str, ...]
    labels: tuple[str, ...]
    schema: Any = None
    clock: str = ""


def run_gold(item: GoldItem) -> dict[str, Any]:
    """Execute every reference query once, in the sandbox the agents' queries run in.

    Returns `tables` (golds: task_id, result, ordered), and `schema` and `clock` of the database;
    all empty for a benchmark without SQL.
    """
    from sentinel.benchmarks.registry import load
    from sentinel.labels import is_ordered

    benchmark: Any = load(dict(item.settings))
    try:
        benchmark.prepare(Path(item.cache))
        sandbox = getattr(benchmark, "sandbox", None)
        if sandbox is None:
            return {"tables": {GOLDS: GOLD_SCHEMA.empty_table()}, "schema": None, "clock": ""}
        pool = sandbox()
        known = read_tasks(item.where)
        rows = [
            {
                "task_id": task_id,
                "result": pool.query(task["gold"]).to_json(),
                "ordered": is_ordered(task["gold"]),
            }
            for task_id, task in known.items()
            if item.execute and task["gold"] is not None and task["answerable"]
        ]
        schema, clock = world_of(benchmark)
        return {
            "tables": {GOLDS: pa.Table.from_pylist(rows, schema=GOLD_SCHEMA)},
            "schema": schema,
            "clock": clock,
        }
    finally:
        benchmark.close()


def world_of(benchmark: Any) -> tuple[Any, str]:
    """What features know of a prepared benchmark: the schema of its database and its clock; None
    and no clock where actions are no SQL."""
    from sentinel.sql.schema import Schema

    sandbox = getattr(benchmark, "sandbox", None)
    if sandbox is None:
        return None, ""
    pool = sandbox()
    own = hasattr(benchmark, "schema")
    return benchmark.schema() if own else Schema.read(pool.database), pool.clock


def label_part(item: LabelItem) -> dict[str, pa.Table]:
    """Verdicts and features of some episodes: tables `labels` and `features`."""
    from sentinel.features import feature_rows
    from sentinel.labels import Gold, label_rows
    from sentinel.sql.result import Result

    tasks = read_tasks(item.where)
    episodes = list(read_episodes(item.where, set(item.episodes), telemetry=True))
    needed = {e.task_id for e in episodes}
    golds = {
        row["task_id"]: Gold(Result.from_json(row["result"]), row["ordered"])
        for _, table in item.where.run_dir.read_parts(LABEL, item.where.benchmark, None, GOLDS)
        for row in table.filter(
            pc.is_in(table["task_id"], pa.array(needed, pa.string()))
        ).to_pylist()
    }
    answerable = {t: tasks[t]["answerable"] for t in needed}
    questions = {t: tasks[t]["text"] for t in needed}
    return {
        "labels": LABELS.from_rows(label_rows(episodes, answerable, golds, item.labels)),
        "features": FEATURE_ROWS.from_rows(
            feature_rows(episodes, questions, item.schema, item.clock)
        ),
    }
