"""Every budget vector at once: survivors and savings of all B^G candidates, exactly.

An episode meets a candidate only through m_r, the number of budgets whose threshold at gate r it
exceeds: candidate j lets it pass gate r iff m_r ≤ j_r. So one histogram over (m_1 … m_G), cumulated
along every axis, holds the survivors of all candidates, and one histogram per gate their savings.
Everything is integer arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentinel.cascade.gates import Thresholds
from sentinel.cascade.table import Bools, Ints, Rounds
from sentinel.errors import UserError

MEMORY = 2**30
"""Bytes a search may take unless told otherwise."""
_ARRAYS = 4
_EXACT = 2**53


@dataclass(frozen=True)
class Searched:
    """K and S of every candidate, flat in C order: gate 1 is the most significant axis.

    `kept` (B^G,) successes that survive every gate, of `successes`; `saved` (B^G,) cost saved, of
    `cost`. Candidate index → budget by `vector`.
    """

    grid: tuple[str, ...]
    gates: int
    kept: Ints
    saved: Ints
    successes: int
    cost: int

    def vector(self, index: int) -> tuple[int, ...]:
        """Budget index per gate of a flat candidate index."""
        shape = (len(self.grid),) * self.gates
        return tuple(int(i) for i in np.unravel_index(index, shape))

    def index(self, vector: tuple[int, ...]) -> int:
        """Inverse of `vector`."""
        return int(np.ravel_multi_index(vector, (len(self.grid),) * self.gates))

    def budget(self, index: int) -> tuple[str, ...]:
        """Budgets t_1…t_G of a flat candidate index, as decimal texts."""
        return tuple(self.grid[b] for b in self.vector(index))


def memory(budgets: int, gates: int) -> int:
    """Bytes a search over budgets^gates candidates takes at its peak."""
    return 8 * _ARRAYS * int(budgets) ** int(gates)


def memory_text(budgets: int, gates: int) -> str:
    """The same for people, with the number of candidates.

    >>> memory_text(6, 6)
    '46,656 candidates, 1.5 MB'
    """
    size = float(memory(budgets, gates))
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{budgets**gates:,} candidates, {size:,.1f} {unit}"


def refuse_memory(budgets: int, gates: int, limit: int = MEMORY) -> None:
    """Raise UserError, before anything is allocated, where a search would not fit."""
    if memory(budgets, gates) > limit:
        raise UserError(
            f"{budgets} budgets on {gates} gates are {memory_text(budgets, gates)}, "
            f"more than the {limit / 1e6:,.1f} MB allowed",
            "take a coarser grid or fewer gates, or raise --memory-mb; the fixed sequence "
            "needs no such table",
        )


def bins(rounds: Rounds, thresholds: Thresholds) -> NDArray[np.intp]:
    """m (E, G): how many budgets of each gate an episode's score exceeds; 0 where NaN or not alive.

    0 passes every budget, B passes none.
    """
    m = np.empty(rounds.score.shape, dtype=np.intp)
    for r in range(rounds.gates):
        # Thresholds below the score; NaN would sort above all of them.
        m[:, r] = np.searchsorted(thresholds.values[r], rounds.score[:, r], side="left")
    m[np.isnan(rounds.score)] = 0
    return m


def search(rounds: Rounds, thresholds: Thresholds, limit: int = MEMORY) -> Searched:
    """Survivors and savings of all candidates on `rounds`.

    Raises UserError where the table would take more than `limit` bytes, or the thresholds are for
    another number of gates. Time is flat in candidates and linear in episodes.
    """
    B, G = len(thresholds.grid), rounds.gates
    if thresholds.gates != G:
        raise UserError(f"thresholds of {thresholds.gates} gates on {G}", "use the same gates")
    refuse_memory(B, G, limit)
    m = bins(rounds, thresholds)
    passes = m < B
    code = np.zeros(len(rounds), dtype=np.intp)
    open_: Bools = np.ones(len(rounds), dtype=bool)
    saved: Ints = np.zeros((), dtype=np.int64)
    for r in range(G):
        # Aborted here by some candidate: bin m − 1 holds those whom every j ≤ m − 1 aborts.
        hit = open_ & (m[:, r] > 0)
        at = code[hit] * B + m[hit, r] - 1
        here: Ints = weighted(at, rounds.saved[hit, r], B ** (r + 1)).reshape((B,) * (r + 1))
        for axis in range(r):
            cumulate(here, axis)
        cumulate(here, r, backwards=True)
        here += saved[..., None]
        saved = here
        open_ &= passes[:, r]
        code = code * B + np.minimum(m[:, r], B - 1)
    kept = np.bincount(code[open_ & rounds.success], minlength=B**G).reshape((B,) * G)
    for axis in range(G):
        cumulate(kept, axis)
    return Searched(
        thresholds.grid,
        G,
        kept.reshape(-1),
        saved.reshape(-1),
        rounds.successes,
        int(rounds.cost.sum()),
    )


def cumulate(values: NDArray[np.integer], axis: int, backwards: bool = False) -> None:
    """Running sum along an axis of a C-contiguous array, in place."""
    n = values.shape[axis]
    inner = int(np.prod(values.shape[axis + 1 :]))
    flat = values.reshape(-1, n, inner)
    if backwards:
        for i in range(n - 2, -1, -1):
            flat[:, i] += flat[:, i + 1]
    else:
        for i in range(1, n):
            flat[:, i] += flat[:, i - 1]


def weighted(index: NDArray[np.intp], weights: Ints, size: int) -> Ints:
    """Integer sums of `weights` per bin, exact however large they are; shape (size,)."""
    if int(weights.sum()) < _EXACT:
        # float64 sums of non-negative integers are exact below 2^53, and bincount is fast.
        return np.bincount(index, weights=weights, minlength=size).astype(np.int64)
    out = np.zeros(size, dtype=np.int64)
    np.add.at(out, index, weights)
    return out
