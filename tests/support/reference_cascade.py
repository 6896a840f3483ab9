"""Brute-force abort cascade: plain loops over exact fractions, written from the rules alone.

An episode is a dictionary: T, success, scores (one per round up to the gates, None or NaN where
missing), costs (cumulative, per round), total. Nothing of the package is imported; speed is no
concern.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Episode = dict[str, Any]
Taus = Sequence[float]
INF = math.inf


def alive(e: Episode, r: int, after_feedback: bool = False) -> bool:
    """Does the episode reach gate r (1-based)?"""
    return e["T"] > r if after_feedback else e["T"] >= r


def tail(k: int, n: int, p: Fraction) -> Fraction:
    """P(Bin(n, p) ≥ k)."""
    return sum(
        (math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(max(k, 0), n + 1)),
        Fraction(0),
    )


def threshold(
    successes: list[float], t: Fraction, alpha: Fraction, kind: str = "clopper-pearson"
) -> float:
    """τ of one gate and budget; +inf where there is none."""
    n = len(successes)
    if n == 0 or t == 1:
        return INF
    if kind == "conformal":
        rank = math.ceil((n + 1) * t)
        return sorted(successes)[rank - 1] if rank <= n else INF
    for k in range(1, n + 1):
        # The bound reaches t iff P(Bin(n, t) ≥ k) ≤ α.
        if tail(k, n, t) <= alpha:
            return sorted(successes)[k - 1]
    return INF


def thresholds(
    calibration: list[Episode],
    gates: int,
    grid: Sequence[str],
    alpha: str = "0.05",
    kind: str = "clopper-pearson",
    after_feedback: bool = False,
) -> list[list[float]]:
    """τ_r(b), one row per gate."""
    table = []
    for r in range(1, gates + 1):
        scores = [
            e["scores"][r - 1]
            for e in calibration
            if e["success"] and alive(e, r, after_feedback) and _seen(e["scores"][r - 1])
        ]
        table.append([threshold(scores, Fraction(t), Fraction(alpha), kind) for t in grid])
    return table


def _seen(score: float | None) -> bool:
    return score is not None and not math.isnan(score)


def play(e: Episode, taus: Taus, after_feedback: bool = False) -> tuple[int, int]:
    """(round of the abort or 0, cost saved)."""
    for r, tau in enumerate(taus, start=1):
        if not alive(e, r, after_feedback):
            break
        score = e["scores"][r - 1]
        if _seen(score) and score > tau:
            return r, e["total"] - e["costs"][r - 1]
    return 0, 0


def count(episodes: list[Episode], taus: Taus, after_feedback: bool = False) -> tuple[int, int]:
    """(successes kept, cost saved) of one cascade."""
    kept = saved = 0
    for e in episodes:
        gate, gain = play(e, taus, after_feedback)
        kept += e["success"] and gate == 0
        saved += gain
    return kept, saved


def search(
    episodes: list[Episode], table: list[list[float]], after_feedback: bool = False
) -> dict[tuple[int, ...], tuple[int, int]]:
    """(kept, saved) of every candidate."""
    found = {}
    for vector in itertools.product(*(range(len(row)) for row in table)):
        taus = [row[b] for row, b in zip(table, vector, strict=True)]
        found[vector] = count(episodes, taus, after_feedback)
    return found


def choose(
    found: dict[tuple[int, ...], tuple[int, int]],
    n: int,
    recall: Fraction,
    allowed: Any = lambda vector: True,
) -> tuple[int, ...] | None:
    """Most savings with K/n ≥ recall; ties → larger K → lexicographically larger budget."""
    if n == 0:
        return None
    best = None
    for vector, (kept, saved) in found.items():
        if not allowed(vector) or Fraction(kept, n) < recall:
            continue
        key = (saved, kept, vector)
        if best is None or key > best:
            best = key
    return None if best is None else best[2]


def chain(calibration: list[Episode], table: list[list[float]]) -> list[tuple[int, ...]]:
    """Order of the fixed sequence, starting with every gate at its last budget (which aborts
    nothing)."""
    vector = tuple(len(row) - 1 for row in table)

    def taus(v: tuple[int, ...]) -> list[float]:
        return [row[b] for row, b in zip(table, v, strict=True)]

    n = sum(e["success"] for e in calibration)
    kept, saved = count(calibration, taus(vector))
    assert (kept, saved) == (n, 0)
    links = [vector]
    while True:
        best: Any = None
        for r in range(len(table)):
            for b in range(vector[r] - 1, -1, -1):
                moved = (*vector[:r], b, *vector[r + 1 :])
                k, s = count(calibration, taus(moved))
                if s != saved:
                    ratio = Fraction(s - saved) / (kept - k + Fraction(1, 2))
                    if best is None or ratio >= best[0]:
                        best = (ratio, moved, k, s)
                    break
        if best is None:
            return links
        _, vector, kept, saved = best
        links.append(vector)


def accept(kept: list[int], n: int, target: str, alpha: str) -> int:
    """Position of the last link accepted before the first failure; 0 where none."""
    position = 0
    for i, k in enumerate(kept):
        if tail(k, n, Fraction(target)) > Fraction(alpha):
            break
        position = i
    return position
