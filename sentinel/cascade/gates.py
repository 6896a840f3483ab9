"""Round gates: one threshold per gate and budget, from calibration successes (the paper,
"Per-round gates" and "Conformal-Quantile Gates")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from sentinel.cascade.bounds import conformal_rank, smallest_n, smallest_rank
from sentinel.cascade.table import Bools, Floats, Rounds
from sentinel.errors import UserError

GRID = ("0.85", "0.9", "0.95", "0.98", "0.99", "1")
NONE = float("inf")
"""A gate without a threshold: nothing exceeds it. Written as the word "none"."""


@dataclass(frozen=True)
class Thresholds:
    """τ_r(b) for G gates and B budgets.

    `grid` ascending decimal texts; `values` (G, B) non-decreasing along b, +inf = none; `n` the
    non-NaN success scores behind each gate.
    """

    grid: tuple[str, ...]
    values: Floats
    n: tuple[int, ...]
    kind: str = "given"
    alpha: str | None = None

    @property
    def gates(self) -> int:
        """Number of gates."""
        return int(self.values.shape[0])

    @classmethod
    def given(cls, grid: Sequence[str], values: Iterable[Iterable[float | None]]) -> Thresholds:
        """A user's own table, (G, B); None or +inf means none.

        Raises UserError for NaN, another shape, or a threshold that falls as the budget grows.
        """
        rows = [[NONE if v is None else float(v) for v in row] for row in values]
        if not rows or any(len(row) != len(grid) for row in rows):
            raise UserError(
                f"thresholds need one row per gate and {len(grid)} budgets in each",
                "give one threshold per budget, `none` where a gate has none",
            )
        table = np.array(rows, dtype=np.float64)
        if np.isnan(table).any():
            raise UserError("a threshold is NaN", "write `none` for a gate that aborts nothing")
        falls = np.argwhere(table[:, 1:] < table[:, :-1])
        if len(falls):
            gate, b = (int(i) for i in falls[0])
            raise UserError(
                f"thresholds of gate {gate + 1} fall from {table[gate, b]:g} at budget {grid[b]} "
                f"to {table[gate, b + 1]:g} at {grid[b + 1]}",
                "a larger budget must not abort more: sort budgets and thresholds together",
            )
        return cls(tuple(grid), table, (0,) * len(rows))

    @classmethod
    def from_json(cls, text: str) -> Thresholds:
        """Thresholds from a JSON object with `grid` and `thresholds` (one row per gate, "none"
        where there is none), as `sentinel cascade --json` prints them under `gates`.

        Raises UserError for anything else, and as `given` does.
        """
        from sentinel.cascade.config import checked_grid

        try:
            data = json.loads(text)
            grid = [str(t) for t in data["grid"]]
            rows = [
                [None if tau in ("none", None) else float(tau) for tau in row]
                for row in data["thresholds"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"thresholds cannot be read ({error!r})",
                'write {"grid": [0.9, 1], "thresholds": [[0.3, "none"], …]}, one row per gate',
            ) from error
        texts = checked_grid(grid)
        if [Fraction(t) for t in texts] != [Fraction(t) for t in grid]:
            raise UserError("the grid of the thresholds does not ascend", "sort both together")
        return cls.given(texts, rows)

    def missing(self) -> list[dict[str, Any]]:
        """Gates that no budget below 1 opens, with the successes the loosest budget needs."""
        below = [b for b, t in enumerate(self.grid) if Fraction(t) < 1]
        if self.kind == "given" or not below:
            return []
        t = Fraction(self.grid[below[0]])
        if self.kind == "conformal":
            needed: int | None = -(-t // (1 - t))  # the smallest n with (n + 1)·t ≤ n
        else:
            needed = smallest_n(t, Fraction(self.alpha or "0.05"))
        return [
            {"gate": r + 1, "successes": self.n[r], "budget": self.grid[below[0]], "needs": needed}
            for r in range(self.gates)
            if np.isinf(self.values[r, below]).all()
        ]


def fit_gates(
    calibration: Rounds,
    grid: Sequence[str] = GRID,
    alpha: str = "0.05",
    kind: str = "clopper-pearson",
) -> Thresholds:
    """Thresholds of every gate and budget from the calibration episodes.

    S_r holds the n_r non-NaN scores of successes alive at r. Clopper–Pearson: k* is the smallest k
    with bound(k, n_r) ≥ t at one-sided level α, τ = the k*-th smallest of S_r; no k*, n_r = 0 or
    t = 1 give none. Conformal: the ⌈(n_r + 1)t⌉-th smallest, a rank above n_r gives none. Scores
    equal to a threshold survive, so ties only keep more.
    """
    budgets = [Fraction(t) for t in grid]
    level = Fraction(alpha)
    values = np.full((calibration.gates, len(budgets)), NONE)
    n = []
    for r in range(calibration.gates):
        scores = np.sort(success_scores(calibration, r))
        n.append(len(scores))
        for b, t in enumerate(budgets):
            if t >= 1:
                continue
            if kind == "conformal":
                rank = conformal_rank(len(scores), t)
            else:
                rank = smallest_rank(len(scores), t, level)
            if rank is not None:
                values[r, b] = scores[rank - 1]
    return Thresholds(tuple(grid), values, tuple(n), kind, alpha)


def success_scores(rounds: Rounds, gate: int) -> Floats:
    """Non-NaN scores of successes alive at a gate (0-based), (n_r,)."""
    column = rounds.score[:, gate]
    use: Bools = rounds.success & rounds.alive[:, gate] & ~np.isnan(column)
    return np.asarray(column[use])
