"""What workers do in the heads stage: snapshots, fits, scores; how workers read episodes.

Every function takes one small item and reads its inputs from the run directory, so that memory is
bounded by the part and not by the run. The driver commits what they return.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster import files
from cluster.event_log import EventLog
from cluster.run_dir import RunDir
from sentinel.heads.config import HEADS as PAIR
from sentinel.heads.config import SHARED
from sentinel.tables import EPISODES, SCORES, SHARED_SCORES, TURNS

if TYPE_CHECKING:
    from sentinel.episodes import Episode
    from sentinel.heads.snapshots import Snapshots
    from sentinel.heads.strategy import Strategy

log = logging.getLogger(__name__)
HEADS = "heads"
SNAPSHOTS = "snapshots"
FINAL = "final"
_TELEMETRY = ("prompt_ids", "generated_ids", "logprobs", "top_ids", "top_logprobs")
_BATCH = 2048


@dataclass(frozen=True)
class Where:
    """The benchmark and agent of an item, and the run directory they live in."""

    run_root: str
    benchmark: str
    agent: str = ""

    @property
    def run_dir(self) -> RunDir:
        """The run directory, on this machine."""
        return RunDir(self.run_root)


@dataclass(frozen=True)
class SnapshotItem:
    """All prefixes of one agent."""

    where: Where
    settings: Mapping[str, Any] = field(hash=False)
    label: str
    drop_stopped: bool = False
    heads: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The `heads` section: prefixes are tokenised for an encoder."""
    questions: str = ""
    """The part whose token ids of the questions are taken over (`cluster.head_tokens`)."""


@dataclass(frozen=True)
class FoldItem:
    """One head of one fold (None: the final pair) of one agent."""

    where: Where
    head: str
    fold: int | None
    settings: Mapping[str, Any] = field(hash=False)
    seed: int = 0
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The part's name, such as `correctness-fold0` or `answerability-final`."""
        return f"{self.head}-{FINAL if self.fold is None else f'fold{self.fold}'}"

    @property
    def folder(self) -> Path:
        """Where the fitted head is kept."""
        return self.where.run_dir.parts(HEADS, self.where.benchmark, self.where.agent) / (
            f"model-{self.name}"
        )

    @property
    def workers(self) -> int:
        """Processes that share the fit; TF–IDF is one process's work."""
        return 1 if self.settings["kind"] == "tfidf" else int(self.settings.get("workers", 1))

    @property
    def checkpoints(self) -> Path:
        """What a killed fit goes on from; removed once the part is committed."""
        return self.folder.with_name(f"checkpoints-{self.name}")

    @property
    def events(self) -> Path:
        """TensorBoard's event files of the fit."""
        place = (self.where.benchmark, self.where.agent, self.name)
        return self.where.run_dir.logs.joinpath("tensorboard", *map(files.safe_name, place))


def snapshot_part(item: SnapshotItem) -> dict[str, Any]:
    """Every rendered prefix of an agent: `tables` (snapshots; token ids, for an encoder) and
    `dropped` episodes by end."""
    from sentinel.benchmarks.registry import load
    from sentinel.heads.snapshots import build

    tasks = read_tasks(item.where)
    labels = item.where.run_dir.read("labels", item.where.benchmark, item.where.agent)
    labels = labels.filter(pc.equal(labels["label"], item.label))
    correct = dict(
        zip(labels["episode_id"].to_pylist(), labels["correct"].to_pylist(), strict=True)
    )
    episodes = read_episodes(item.where, None, telemetry=False)
    snapshots, dropped = build(
        episodes,
        tasks,
        correct,
        drop_stopped=item.drop_stopped,
        dialect=load(dict(item.settings)).dialect,
    )
    tables = {SNAPSHOTS: snapshots.to_table()}
    if item.heads.get("kind") == "encoder":
        from cluster.head_tokens import TOKENS, token_part

        texts = snapshots.text.tolist()
        tables[TOKENS] = token_part(item.where, item.questions, item.heads, texts)
    return {"tables": tables, "dropped": dict(dropped)}


def fit_memory(item: FoldItem) -> dict[str, Any]:
    """Measured GPU memory of a fit of this item's settings: `fit_bytes`, `device_bytes`."""
    from sentinel.heads.config import HeadConfig
    from sentinel.heads.memory import measure

    peak = measure(HeadConfig.of(item.settings), item.device)
    return {"fit_bytes": peak.fit, "device_bytes": peak.device}


def fold_part(item: FoldItem, strategy: Strategy | None = None) -> dict[str, Any]:
    """Fit one head of one fold and score its rows: `tables` (`scores`, or `shared_scores` of the
    shared encoder) and `metrics`.

    With a `strategy`, as one of the processes that share the fit.

    Where the training rows have one class or there are none, the logits are null and `metrics`
    names the cause. Raises HeadFailure when a fit that was begun cannot go on.
    """
    from cluster.head_tokens import read_tokens
    from sentinel.heads.config import HeadConfig, HeadFailure
    from sentinel.heads.folds import fit_fold
    from sentinel.heads.snapshots import plan, scored_rows

    snapshots = read_snapshots(item.where)
    config = HeadConfig.of(item.settings)
    seed = fit_seed(item.seed, item.head, item.fold)
    try:
        planned = plan(snapshots, item.head, item.fold, validation=config.validation, seed=seed)
    except HeadFailure as failure:
        rows = scored_rows(snapshots, item.fold)
        metrics = {"head": item.head, "fold": item.fold, "not_fitted": str(failure)}
        nothing = np.full(len(rows), np.nan)
        tables = score_tables(item, snapshots, rows, nothing, np.zeros(len(rows), dtype=bool))
        return {"tables": tables, "metrics": metrics}
    events = EventLog(item.events)
    try:
        found = fit_fold(
            snapshots,
            planned,
            config,
            seed,
            folder=item.folder,
            device=item.device,
            strategy=strategy,
            checkpoints=item.checkpoints if item.settings.get("checkpoint", True) else None,
            on_epoch=events,
            tokens=read_tokens(item.where, item.settings),
        )
    finally:
        events.close()
    tables = score_tables(item, snapshots, found.rows, found.logits, found.truncated)
    return {"tables": tables, "metrics": found.metrics}


def shared_part(where: Where) -> list[dict[str, Any]]:
    """AUROC of the shared encoder beside the pair's, per head (`sentinel.heads.shared`)."""
    from sentinel.heads.shared import beside

    place = where.benchmark, where.agent
    pair, shared = (where.run_dir.read(t.name, *place) for t in (SCORES, SHARED_SCORES))
    return beside(read_snapshots(where), pair, shared)


def fit_seed(seed: int, head: str, fold: int | None) -> int:
    """A seed per head and fold, the same wherever the fit runs."""
    return zlib.crc32(f"{seed}/{head}/{FINAL if fold is None else fold}".encode())


def read_snapshots(where: Where) -> Snapshots:
    """The rendered prefixes of an agent, from its part."""
    from sentinel.heads.snapshots import Snapshots

    for _, table in where.run_dir.read_parts(HEADS, where.benchmark, where.agent, SNAPSHOTS):
        return Snapshots.from_table(table)
    raise RuntimeError(f"no snapshots of {where.benchmark}/{where.agent}")


def read_episodes(
    where: Where,
    wanted: Collection[str] | None,
    *,
    telemetry: bool,
    keep: Collection[str] = (),
) -> Iterator[Episode]:
    """Episodes of an agent, all or the wanted ids; without telemetry the token columns are null,
    but for those to `keep`."""
    from sentinel.episodes import from_rows

    turns: dict[str, list[dict[str, Any]]] = {}
    skip = () if telemetry else tuple(c for c in _TELEMETRY if c not in keep)
    for row in _rows(where, TURNS.name, wanted, skip):
        turns.setdefault(row["episode_id"], []).append(row)
    for row in _rows(where, EPISODES.name, wanted, ()):
        found = sorted(turns.pop(row["episode_id"], []), key=lambda r: r["turn"])
        yield from_rows(row, found)


def _rows(
    where: Where, name: str, wanted: Collection[str] | None, skip: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Rows of a compacted table, a batch at a time, filtered by episode."""
    path = where.run_dir.table_path(name, where.benchmark, where.agent)
    keep = None if wanted is None else pa.array(sorted(wanted), pa.string())
    with path.open("rb") as file:
        parquet = pq.ParquetFile(file)
        columns = [c for c in parquet.schema_arrow.names if c not in skip]
        nothing = dict.fromkeys(skip)
        for batch in parquet.iter_batches(batch_size=_BATCH, columns=columns):
            if keep is not None:
                batch = batch.filter(pc.is_in(batch["episode_id"], keep))
            for row in batch.to_pylist():
                yield row | nothing


def read_tasks(where: Where) -> dict[str, dict[str, Any]]:
    """Rows of the `tasks` table of a benchmark, by task_id."""
    table = where.run_dir.read("tasks", where.benchmark)
    return {row["task_id"]: row for row in table.to_pylist()}


def score_tables(
    item: FoldItem,
    snapshots: Snapshots,
    rows: np.ndarray,
    logits: np.ndarray,
    truncated: np.ndarray,
) -> dict[str, pa.Table]:
    """The table of a fit's logits, (k,) or, of the shared encoder, (k, 2) or (k,) for both."""
    shared = item.head == SHARED
    heads = PAIR if shared else (item.head,)
    spec = SHARED_SCORES if shared else SCORES
    columns = np.broadcast_to(logits.reshape(len(rows), -1), (len(rows), len(heads))).T
    n = len(rows)
    parts = []
    for head, values in zip(heads, columns, strict=True):
        parts.append(
            pa.table(
                {
                    "benchmark": pa.array([item.where.benchmark] * n, pa.string()),
                    "agent": pa.array([item.where.agent] * n, pa.string()),
                    "episode_id": pa.array(snapshots.episode_id[rows], pa.string()),
                    "t": pa.array(snapshots.t[rows], pa.int64()),
                    "head": pa.array([head] * n, pa.string()),
                    "logit": pa.array(values, pa.float64(), mask=np.isnan(values)),
                    "fold": pa.array([item.fold] * n, pa.int64()),
                    "truncated": pa.array(truncated, pa.bool_()),
                },
                schema=spec.schema,
            )
        )
    return {spec.name: spec.check(pa.concat_tables(parts))}
