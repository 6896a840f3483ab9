"""`round_scores` as columns: the episodes of one cell under one scorer, gate by gate.

The table is checked before anything is computed, and every fault is reported at once. Rows may come
in any order; episodes are kept sorted by id, so that the order of rows never changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentinel import tables
from sentinel.errors import UserError
from sentinel.splits import CASCADE_POOLS
from sentinel.user_tables import typed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Texts = NDArray[np.object_]

REQUIRED = tuple(
    name for name in tables.ROUND_SCORES.columns if name not in tables.ROUND_SCORES_OPTIONAL
)
_EPISODE = ("task_id", "group", "rounds_total", "cost_total", "success", "pool")
_SAFE = 2**62


@dataclass(frozen=True)
class Rounds:
    """E episodes of one cell under one scorer; arrays are read, never changed.

    Per episode: `episode`, `task`, `group`, `pool` (E,) text ("" without pools); `T` (E,) rounds;
    `success`, `labelled` (E,), the second False where the outcome is unknown; `cost` (E,) = C.
    Per episode and gate r = 1…G: `alive` (E, G) whether the episode reaches the gate; `score` (E,
    G), NaN where missing or not alive; `saved` (E, G) = C − c_r, 0 where not alive.
    """

    cell: str
    scorer: str
    episode: Texts
    task: Texts
    group: Texts
    pool: Texts
    T: Ints
    success: Bools
    labelled: Bools
    cost: Ints
    alive: Bools
    score: Floats
    saved: Ints
    after_feedback: bool = False

    def __len__(self) -> int:
        return len(self.T)

    @property
    def gates(self) -> int:
        """Number of gates G."""
        return int(self.score.shape[1])

    @property
    def successes(self) -> int:
        """Episodes with y = 1."""
        return int(self.success.sum())

    def take(self, keep: NDArray[Any]) -> Rounds:
        """The episodes that `keep` (mask or indices over E) names."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Rounds(**{k: v[keep] if isinstance(v, np.ndarray) else v for k, v in values.items()})

    def unit(self, by: str) -> Texts:
        """What counts as independent, (E,): the task or its group."""
        return self.group if by == "group" else self.task

    @classmethod
    def of(
        cls,
        score: Floats,
        cost: Ints,
        cost_total: Ints,
        T: Ints,
        success: Bools,
        *,
        task: Sequence[str] | None = None,
        after_feedback: bool = False,
        cell: str = "cell",
        scorer: str = "scorer",
    ) -> Rounds:
        """Rounds from plain arrays: `score`, `cost` (E, G), the rest (E,); for simulations."""
        E, G = score.shape
        names = np.array([f"e{i:07d}" for i in range(E)], dtype=object)
        tasks = names if task is None else np.array(list(task), dtype=object)
        alive = _alive(T, G, after_feedback)
        return cls(
            cell,
            scorer,
            names,
            tasks,
            tasks,
            np.full(E, "", dtype=object),
            T,
            success,
            np.ones(E, dtype=bool),
            cost_total,
            alive,
            np.where(alive, score, np.nan),
            np.where(alive, cost_total[:, None] - cost, 0),
            after_feedback,
        )


def _alive(T: Ints, gates: int, after_feedback: bool) -> Bools:
    r = np.arange(1, gates + 1)
    return np.asarray(T[:, None] > r if after_feedback else T[:, None] >= r)


def from_table(table: pa.Table, gates: int = 6, after_feedback: bool = False) -> list[Rounds]:
    """Check a `round_scores` table and lay it out, one `Rounds` per cell and scorer, in order.

    `gates`: gates sit at rounds 1…gates. `after_feedback`: an episode is alive at r iff T > r, else
    iff T ≥ r. An episode needs rows for rounds 1…min(T, gates); later ones may be left out.

    Raises UserError with every fault found: unknown or missing columns, types, nulls, values out of
    range, repeated or missing rounds, and columns that differ within an episode or a task.
    """
    if gates < 1:
        raise UserError(f"{gates} gates", "ask for at least one")
    table, faults = typed(table, tables.ROUND_SCORES, tables.ROUND_SCORES_OPTIONAL)
    if faults:
        _refuse(faults)
    for name, value in (("cell", "cell"), ("scorer", "scorer"), ("pool", "")):
        if name not in table.column_names:
            table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
    if not table.num_rows:
        raise UserError("the table has no rows", "give one row per episode and round")
    keys = ["cell", "scorer", "episode_id", "round"]
    table = table.take(pc.sort_indices(table, [(k, "ascending") for k in keys])).combine_chunks()
    new = _changes(table, ["cell", "scorer", "episode_id"])
    start = np.flatnonzero(new).astype(np.int64)
    faults = _faults(table, new, start, gates)
    if faults:
        _refuse(faults)
    whole = _layout(table, start, gates, after_feedback)
    head = table.take(pa.array(start))
    first = np.flatnonzero(_changes(head, ["cell", "scorer"]))
    ends = [*first[1:], len(start)]
    cells, scorers = head.column("cell").to_pylist(), head.column("scorer").to_pylist()
    found = []
    for a, b in zip(first, ends, strict=True):
        part = whole.take(np.arange(a, b))
        values = {f.name: getattr(part, f.name) for f in fields(part)}
        found.append(Rounds(**{**values, "cell": cells[a], "scorer": scorers[a]}))
    return found


def _layout(table: pa.Table, start: Ints, gates: int, after_feedback: bool) -> Rounds:
    size = np.diff(np.append(start, table.num_rows))
    owner = np.repeat(np.arange(len(start)), size)
    head = table.take(pa.array(start))
    r = _int(table, "round")
    gated = r <= gates
    score = np.full((len(start), gates), np.nan)
    score[owner[gated], r[gated] - 1] = _scores(table)[gated]
    T, total = _int(head, "rounds_total"), _int(head, "cost_total")
    left = np.zeros((len(start), gates), dtype=np.int64)
    left[owner[gated], r[gated] - 1] = (total[owner] - _int(table, "cost"))[gated]
    alive = _alive(T, gates, after_feedback)
    outcome = head.column("success").to_pylist()
    return Rounds(
        "cell",
        "scorer",
        _text(head, "episode_id"),
        _text(head, "task_id"),
        _text(head, "group"),
        _text(head, "pool"),
        T,
        np.array([y is True for y in outcome], dtype=bool),
        np.array([y is not None for y in outcome], dtype=bool),
        total,
        alive,
        np.where(alive, score, np.nan),
        np.where(alive, left, 0),
        after_feedback,
    )


def _faults(table: pa.Table, new: Bools, start: Ints, gates: int) -> list[str]:
    faults = []
    size = np.diff(np.append(start, table.num_rows))
    r, T = _int(table, "round"), _int(table, "rounds_total")
    cost, total = _int(table, "cost"), _int(table, "cost_total")
    infinite = int(np.isinf(_scores(table)).sum())
    if infinite:
        faults.append(f"score has {infinite} infinite values (finite, or null where missing)")
    if (T < 1).any():
        faults.append(f"rounds_total < 1 in {int((T < 1).sum())} rows")
    if (cost < 0).any() or (cost > total).any():
        bad = int(((cost < 0) | (cost > total)).sum())
        faults.append(f"cost lies outside 0…cost_total in {bad} rows")
    falls = ~new[1:] & (cost[1:] < cost[:-1])
    if falls.any():
        faults.append(f"cost falls within an episode, {int(falls.sum())} times (it is cumulative)")
    last = (r == T) & (cost != total)
    if last.any():
        faults.append(f"cost differs from cost_total at the last round of {int(last.sum())} rows")
    if float(np.abs(total[start].astype(np.float64)).sum()) >= _SAFE:
        faults.append("costs add up to more than 2^62: use a coarser unit")
    for name in _EPISODE:
        column = table.column(name).to_numpy(zero_copy_only=False)
        differs = int(((column[1:] != column[:-1]) & ~new[1:]).sum())
        if differs:
            faults.append(f"{name} changes within an episode, {differs} times")
    faults += _round_faults(r, T, new, start, size, gates)
    head = table.take(pa.array(start))
    pools = {p or "" for p in head.column("pool").to_pylist()}
    unknown = sorted(pools - {"", *CASCADE_POOLS})
    if unknown:
        valid = ", ".join(CASCADE_POOLS)
        faults.append(f"unknown pools: {', '.join(unknown)} (valid: {valid})")
    elif "" in pools and len(pools) > 1:
        faults.append("pool is null in some episodes")
    for name in ("group", "pool"):
        pairs = set(
            zip(head.column("task_id").to_pylist(), head.column(name).to_pylist(), strict=True)
        )
        torn = len(pairs) - len({task for task, _ in pairs})
        if torn:
            faults.append(f"{torn} tasks have more than one {name}")
    return faults


def _round_faults(r: Ints, T: Ints, new: Bools, start: Ints, size: Ints, gates: int) -> list[str]:
    repeated = ~new[1:] & (r[1:] == r[:-1])
    if repeated.any():
        return [f"{int(repeated.sum())} rows repeat an episode_id and round"]
    if (r < 1).any() or (r > T).any():
        return [f"round lies outside 1…rounds_total in {int(((r < 1) | (r > T)).sum())} rows"]
    place = np.arange(len(r)) - np.repeat(start, size) + 1
    short = size < np.minimum(T[start], gates)
    gaps = np.logical_or.reduceat(r != place, start) | short
    if gaps.any():
        return [
            f"{int(gaps.sum())} episodes lack a round: each needs a row for every round "
            f"1…min(rounds_total, {gates}), with a null score where there is none"
        ]
    return []


def _refuse(faults: list[str]) -> None:
    raise UserError(
        f"table round_scores: {'; '.join(faults)}",
        f"required columns: {', '.join(REQUIRED)}; "
        f"optional: {', '.join(tables.ROUND_SCORES_OPTIONAL)}",
    )


def _changes(table: pa.Table, names: list[str]) -> Bools:
    new = np.zeros(table.num_rows, dtype=bool)
    new[:1] = True
    for name in names:
        values = table.column(name).to_numpy(zero_copy_only=False)
        new[1:] |= values[1:] != values[:-1]
    return new


def _int(table: pa.Table, name: str) -> Ints:
    return np.asarray(table.column(name).to_numpy(), dtype=np.int64)


def _text(table: pa.Table, name: str) -> Texts:
    return np.array([v or "" for v in table.column(name).to_pylist()], dtype=object)


def _scores(table: pa.Table) -> Floats:
    values = pc.fill_null(table.column("score"), float("nan"))
    return np.ascontiguousarray(values.to_numpy(), dtype=np.float64)
