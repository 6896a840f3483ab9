"""Rendered prefixes t = 0…T of every episode, their targets, and who trains on what.

One row per (episode, t), flat columns (the paper, Section 4.1). Every snapshot carries the final
outcome of its episode, with equal weight. *Answerability*: all episodes with an outcome, positive =
unanswerable. *Correctness*: answered answerable episodes, target correct. Each fold's heads are
fitted on the other folds and score every episode of their own; a final pair, on the whole train
pool, scores calibration and held-out. The early-stopping rows are cut by group from the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sentinel.errors import UserError
from sentinel.heads.config import ANSWERABILITY, CORRECTNESS, HEADS, SHARED, HeadFailure
from sentinel.tables import OUTCOME_ENDS

if TYPE_CHECKING:
    from sentinel.agent.react import Dialect
    from sentinel.episodes import Episode

_TRIES = 25
_SCORED_BY_FINAL = ("calibration", "heldout")
_SCHEMA = pa.schema(
    [
        ("episode_id", pa.string()),
        ("group", pa.string()),
        ("pool", pa.string()),
        ("fold", pa.int64()),
        ("answerable", pa.bool_()),
        ("answered", pa.bool_()),
        ("correct", pa.bool_()),
        ("t", pa.int64()),
        ("text", pa.large_string()),
    ]
)


@dataclass(frozen=True)
class Snapshots:
    """n rows, ordered by episode and t.

    `episode_id`, `group`, `pool`, `text` are object arrays of str; `fold` is −1 outside the train
    pool; `answerable` and `correct` are float arrays with NaN where there is no value.
    """

    episode_id: np.ndarray
    group: np.ndarray
    pool: np.ndarray
    fold: np.ndarray
    answerable: np.ndarray
    answered: np.ndarray
    correct: np.ndarray
    t: np.ndarray
    text: np.ndarray

    def __len__(self) -> int:
        return len(self.t)

    def target(self, head: str) -> np.ndarray:
        """(n,) float64 target of a head, NaN where the row is not eligible for it.

        Correctness: answered, answerable episodes. Where the notion of an answer does not apply (a
        goal in an environment), every episode with a verdict: one that met the cap has failed, and
        those that ended before it have all succeeded.
        """
        if head == ANSWERABILITY:
            return 1.0 - self.answerable
        if head != CORRECTNESS:
            raise ValueError(f"unknown head {head!r}")
        eligible = np.isnan(self.answerable) | (self.answered & (self.answerable != 0.0))
        return np.where(eligible, self.correct, np.nan)

    def targets(self, head: str) -> np.ndarray:
        """(n, outputs) float64 targets of a head's logits; `shared` has both, in their order.

        A row that is not eligible for a target is NaN there: the loss leaves it out.
        """
        heads = HEADS if head == SHARED else (head,)
        return np.stack([self.target(name) for name in heads], axis=1)

    def to_table(self) -> pa.Table:
        """As an Arrow table, for the part that the fitting tasks read."""
        columns = {
            "episode_id": pa.array(self.episode_id, pa.string()),
            "group": pa.array(self.group, pa.string()),
            "pool": pa.array(self.pool, pa.string()),
            "fold": pa.array(self.fold, pa.int64()),
            "answerable": _nullable(self.answerable),
            "answered": pa.array(self.answered, pa.bool_()),
            "correct": _nullable(self.correct),
            "t": pa.array(self.t, pa.int64()),
            "text": pa.array(self.text, pa.large_string()),
        }
        return pa.table(columns, schema=_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table) -> Snapshots:
        """Inverse of `to_table`."""
        if table.schema.names != _SCHEMA.names:
            raise ValueError(f"not a table of snapshots: {table.schema.names}")

        def objects(name: str) -> np.ndarray:
            return np.array(table.column(name).to_pylist() or [], dtype=object)

        return cls(
            objects("episode_id"),
            objects("group"),
            objects("pool"),
            table.column("fold").to_numpy(),
            _floats(table.column("answerable")),
            np.array(table.column("answered").to_pylist(), dtype=bool),
            _floats(table.column("correct")),
            table.column("t").to_numpy(),
            objects("text"),
        )


@dataclass(frozen=True)
class Plan:
    """Rows of one fit: (k,) index arrays. `fold` is None for the final pair."""

    head: str
    fold: int | None
    train: np.ndarray
    stop: np.ndarray
    score: np.ndarray


def build(
    episodes: Iterable[Episode],
    tasks: Mapping[str, Mapping[str, Any]],
    correct: Mapping[str, bool | None],
    *,
    drop_stopped: bool = False,
    dialect: Dialect | None = None,
) -> tuple[Snapshots, Counter[str]]:
    """Snapshots of every episode with an outcome, and how many others were dropped, by their end.

    `tasks` maps task_id to its row of the `tasks` table, `correct` episode_id to the primary label;
    `dialect` names the sections of the text (None: text-to-SQL).
    Raises UserError for episodes that a monitor ended (`stopped`, `refused`), whose outcome nobody
    knows, unless `drop_stopped`.
    """
    from sentinel.agent.react import SQL_DIALECT
    from sentinel.episodes import render

    rows: list[tuple[Any, ...]] = []
    dropped: Counter[str] = Counter()
    for episode in sorted(episodes, key=lambda e: e.episode_id):
        if episode.end not in OUTCOME_ENDS:
            dropped[episode.end] += 1
            continue
        task = tasks[episode.task_id]
        fold = -1 if task["fold"] is None else task["fold"]
        head = (episode.episode_id, task["group"], task["pool"], fold, _number(task["answerable"]))
        tail = (episode.end == "answered", _number(correct.get(episode.episode_id)))
        for t in range(len(episode.steps) + 1):
            text = render(task["text"], episode.steps, t, episode, dialect or SQL_DIALECT)
            rows.append((*head, *tail, t, text))
    ended = {end: dropped[end] for end in ("stopped", "refused") if dropped[end]}
    if ended and not drop_stopped:
        counts = ", ".join(f"{n} {end}" for end, n in ended.items())
        raise UserError(
            f"episodes that a monitor ended have no outcome ({counts})",
            "set decide.drop_stopped=true to drop and count them, or collect without stop_with",
        )
    columns = list(zip(*rows, strict=True)) if rows else [()] * 9
    kinds = (object, object, object, np.int64, np.float64, bool, np.float64, np.int64, object)
    arrays = [np.array(c, dtype=kind) for c, kind in zip(columns, kinds, strict=True)]
    return Snapshots(*arrays), dropped


def plan(
    snapshots: Snapshots, head: str, fold: int | None, *, validation: float = 0.1, seed: int = 0
) -> Plan:
    """Who trains, who stops and who is scored for one head and fold (None: the final pair).

    Raises HeadFailure where no head can be fitted: no eligible rows, or one class.
    """
    training = snapshots.pool == "train"
    if fold is not None:
        training = training & (snapshots.fold != fold)
    target = snapshots.targets(head)
    rows = np.flatnonzero(training & ~np.isnan(target).all(axis=1))
    for name, column in zip(HEADS if head == SHARED else (head,), target[rows].T, strict=True):
        known = column[~np.isnan(column)]
        if not known.size:
            raise HeadFailure(f"{name}: no eligible episode to train on")
        if len(np.unique(known)) < 2:
            raise HeadFailure(f"{name}: all {known.size} training rows are of one class")
    stop = _inner(snapshots.group[rows], target[rows], validation, seed)
    return Plan(head, fold, rows[~stop], rows[stop], scored_rows(snapshots, fold))


def scored_rows(snapshots: Snapshots, fold: int | None) -> np.ndarray:
    """Rows that a fold's heads score, eligible or not; the final pair's: calibration, held-out."""
    if fold is None:
        return np.flatnonzero(np.isin(snapshots.pool, _SCORED_BY_FINAL))
    return np.flatnonzero((snapshots.pool == "train") & (snapshots.fold == fold))


def _inner(groups: np.ndarray, target: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Mask of the early-stopping rows: whole groups, at least `share` of the rows.

    Both sides should hold both classes of every target (n, outputs); where no draw manages that,
    training keeps both and the early-stopping rows hold what they can (none, when every group is
    needed).
    """
    distinct, index = np.unique(groups, return_inverse=True)
    sizes = np.bincount(index)
    rng = np.random.Generator(np.random.PCG64(seed))
    best = np.zeros(len(groups), dtype=bool)
    for _ in range(_TRIES):
        order = rng.permutation(len(distinct))
        taken = int(np.searchsorted(np.cumsum(sizes[order]), share * len(groups))) + 1
        mask = np.isin(index, order[:taken])
        if not _both_classes(target[~mask]):
            continue
        if _both_classes(target[mask]):
            return mask
        best = mask
    return best


def _both_classes(target: np.ndarray) -> bool:
    return all(len(np.unique(column[~np.isnan(column)])) == 2 for column in target.T)


def _number(value: bool | None) -> float:
    return np.nan if value is None else float(value)


def _nullable(values: np.ndarray) -> pa.Array:
    mask = np.isnan(values)
    return pa.array(np.where(mask, 0.0, values) != 0.0, pa.bool_(), mask=mask)


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.array([_number(v) for v in column.to_pylist()], dtype=np.float64)
