"""`prefix_scores` as columns: one agent's episodes, each with its snapshots t = 0…T.

The table is checked before anything is computed, and every fault is reported at once. Rows may
come in any order; episodes are kept sorted by id, so that the order of rows never changes a result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentinel import tables
from sentinel.calibrate import logit
from sentinel.errors import UserError
from sentinel.user_tables import typed

POOLS = ("train", "calibration", "heldout")
REQUIRED = tuple(
    name for name in tables.PREFIX_SCORES.columns if name not in tables.PREFIX_SCORES_OPTIONAL
)
_EPISODE = ("group", "pool", "T", "answerable", "answered", "correct")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Prefixes:
    """E episodes of one agent with N snapshots in all; arrays are read, never changed.

    Per episode: `episode`, `group`, `pool` (E,) text; `T` (E,); `answerable`, `answered` (E,);
    `good` (E,): answered, answerable and correct; `labelled` (E,): False where an answer to an
    answerable question has no verdict. Per snapshot, in order of episode and t: `t`,
    `p_answerable` and `score` (float64 correctness logit), NaN where missing; `features` (N, 10),
    `tokens`, `seconds` or None.
    `start` (E,): row of each episode's t = 0.
    """

    agent: str
    episode: NDArray[np.object_]
    group: NDArray[np.object_]
    pool: NDArray[np.object_]
    T: Ints
    answerable: Bools
    answered: Bools
    good: Bools
    labelled: Bools
    start: Ints
    t: Ints
    p_answerable: Floats
    score: Floats
    p_correct: Floats
    features: Floats | None = None
    tokens: Floats | None = None
    seconds: Floats | None = None
    missing_features: tuple[str, ...] = tables.FEATURES

    def __len__(self) -> int:
        return len(self.T)

    @property
    def end(self) -> Ints:
        """Row of each episode's snapshot T, shape (E,)."""
        return self.start + self.T

    @property
    def owner(self) -> Ints:
        """Episode of each row, shape (N,)."""
        return np.repeat(np.arange(len(self)), self.T + 1)

    def take(self, keep: Bools) -> Prefixes:
        """The episodes where `keep` (E,) holds."""
        rows = np.repeat(keep, self.T + 1)
        T = self.T[keep]
        start = np.concatenate(([0], np.cumsum(T + 1)[:-1])).astype(np.int64)[: len(T)]

        def cut(values: Floats | None) -> Floats | None:
            return None if values is None else values[rows]

        return Prefixes(
            self.agent,
            self.episode[keep],
            self.group[keep],
            self.pool[keep],
            T,
            self.answerable[keep],
            self.answered[keep],
            self.good[keep],
            self.labelled[keep],
            start,
            self.t[rows],
            self.p_answerable[rows],
            self.score[rows],
            self.p_correct[rows],
            cut(self.features),
            cut(self.tokens),
            cut(self.seconds),
            self.missing_features,
        )

    def in_pool(self, pool: str, labelled: bool = True) -> Prefixes:
        """Episodes of one pool; by default only those whose outcome is known."""
        keep = self.pool == pool
        return self.take(keep & self.labelled if labelled else keep)

    def first(self, hit: Bools) -> Ints:
        """First t of each episode where `hit` (N,) holds; T + 1 where it never does. Shape (E,)."""
        when = np.where(hit, self.t, np.iinfo(np.int64).max)
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        return np.minimum(np.minimum.reduceat(when, self.start), self.T + 1)

    def smallest(self, values: Floats, rows: Bools | None = None) -> Floats:
        """Smallest value of each episode over `rows`, NaN left out; +inf where none. Shape (E,)."""
        if not len(self):
            return np.zeros(0)
        kept = ~np.isnan(values) if rows is None else rows & ~np.isnan(values)
        return np.asarray(np.minimum.reduceat(np.where(kept, values, np.inf), self.start))


def agents_of(table: pa.Table) -> list[str]:
    """Names in the table's `agent` column, sorted; ["agent"] where there is no such column."""
    if "agent" not in table.column_names:
        return ["agent"]
    return sorted(str(name) for name in pc.unique(table.column("agent")).to_pylist())


def from_table(table: pa.Table) -> Prefixes:
    """Check a `prefix_scores` table of one agent and lay it out in columns.

    Raises UserError with every fault found: unknown or missing columns, types, nulls, values out of
    range, repeated or missing snapshots, and columns that differ within an episode.
    """
    table = _typed(table)
    order = pc.sort_indices(table, [("episode_id", "ascending"), ("t", "ascending")])
    table = table.take(order).combine_chunks()
    t, T = _int(table, "t"), _int(table, "T")
    names = table.column("episode_id").to_numpy(zero_copy_only=False)
    new = np.ones(len(t), dtype=bool)
    new[1:] = names[1:] != names[:-1]
    start = np.flatnonzero(new).astype(np.int64)
    size = np.diff(np.append(start, len(t)))
    faults = _rows_faults(table, new, start, size)
    if faults:
        _refuse(faults)
    head = table.take(pa.array(start))
    answerable, answered = _bool(head, "answerable"), _bool(head, "answered")
    correct = np.array(head.column("correct").to_pylist(), dtype=object)
    right = np.array([value is True for value in correct], dtype=bool)
    unknown = np.array([value is None for value in correct], dtype=bool)
    p_correct = _float(table, "p_correct")
    absent = tuple(name for name in tables.FEATURES if name not in table.column_names)
    features = (
        None if absent else np.column_stack([_float(table, name) for name in tables.FEATURES])
    )
    agents = agents_of(table)
    return Prefixes(
        agent=agents[0] if agents else "agent",
        episode=names[start],
        group=head.column("group").to_numpy(zero_copy_only=False),
        pool=head.column("pool").to_numpy(zero_copy_only=False),
        T=T[start],
        answerable=answerable,
        answered=answered,
        good=answered & answerable & right,
        labelled=~(answered & answerable & unknown),
        start=start,
        t=t,
        p_answerable=_float(table, "p_answerable"),
        score=logit(p_correct),
        p_correct=p_correct,
        features=features,
        tokens=_whole(table, "tokens_so_far"),
        seconds=_whole(table, "seconds_so_far"),
        missing_features=absent,
    )


def _typed(table: pa.Table) -> pa.Table:
    table, faults = typed(table, tables.PREFIX_SCORES, tables.PREFIX_SCORES_OPTIONAL)
    if "agent" in table.column_names and len(set(table.column("agent").to_pylist())) > 1:
        faults.append("more than one agent (each is decided alone)")
    if faults:
        _refuse(faults)
    return table


def _rows_faults(table: pa.Table, new: Bools, start: Ints, size: Ints) -> list[str]:
    faults = []
    t, T = _int(table, "t"), _int(table, "T")
    pools = sorted(set(table.column("pool").to_pylist()) - set(POOLS))
    if pools:
        faults.append(f"unknown pools: {', '.join(pools)} (valid: {', '.join(POOLS)})")
    for name in ("p_answerable", "p_correct"):
        values = _float(table, name)
        outside = int(((values < 0) | (values > 1)).sum())
        if outside:
            faults.append(f"{name} has {outside} values outside [0, 1] (probabilities, not logits)")
    for name in ("tokens_so_far", "seconds_so_far"):
        if name in table.column_names and (_float(table, name) < 0).any():
            faults.append(f"{name} has negative values")
    for name in _EPISODE:
        column = table.column(name).to_numpy(zero_copy_only=False)
        differs = int(((column[1:] != column[:-1]) & ~new[1:]).sum()) if len(column) else 0
        if differs:
            faults.append(f"{name} changes within an episode, {differs} times")
    if (T < 1).any():
        faults.append(f"T < 1 in {int((T < 1).sum())} rows")
    owner_start = np.repeat(start, size)
    same = ~new[1:] & (t[1:] == t[:-1])
    if same.any():
        faults.append(f"{int(same.sum())} rows repeat an episode_id and t")
    elif ((t != np.arange(len(t)) - owner_start) | (np.repeat(size, size) != T + 1)).any():
        broken = (t != np.arange(len(t)) - owner_start) | (np.repeat(size, size) != T + 1)
        episodes = len(np.unique(owner_start[broken]))
        faults.append(f"{episodes} episodes lack a snapshot: each needs a row for every t = 0…T")
    return faults


def _refuse(faults: list[str]) -> None:
    raise UserError(
        f"table prefix_scores: {'; '.join(faults)}",
        f"required columns: {', '.join(REQUIRED)}; "
        f"optional: {', '.join(tables.PREFIX_SCORES_OPTIONAL)}",
    )


def _int(table: pa.Table, name: str) -> Ints:
    return np.asarray(table.column(name).to_numpy(), dtype=np.int64)


def _bool(table: pa.Table, name: str) -> Bools:
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=bool)


def _float(table: pa.Table, name: str) -> Floats:
    values = pc.fill_null(pc.cast(table.column(name), pa.float64()), float("nan"))
    return np.ascontiguousarray(values.to_numpy(), dtype=np.float64)


def _whole(table: pa.Table, name: str) -> Floats | None:
    """A column that is there in every row, else None: sums over part of the rows would mislead."""
    if name not in table.column_names or table.column(name).null_count:
        return None
    return _float(table, name)
