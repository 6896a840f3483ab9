"""Guarantees that hold after a search: a Learn-then-Test chain, and its full-search variant.

Both test H_j "the global recall of candidate j is below ρ*" on successes that no earlier step has
seen, p_j = P(Bin(n, ρ*) ≥ K_j). The chain's order comes from calibration alone, so it needs no
correction for the number of candidates; the full search divides α by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from sentinel.cascade.bounds import smallest_n, smallest_rank, tail
from sentinel.cascade.choose import Choice, choose
from sentinel.cascade.gates import Thresholds
from sentinel.cascade.search import Searched, bins
from sentinel.cascade.table import Ints, Rounds


@dataclass(frozen=True)
class Link:
    """One candidate of the chain: budget index per gate (len(grid) = none), and on calibration the
    savings and the successes lost."""

    vector: tuple[int, ...]
    saved: int
    lost: int


def chain(calibration: Rounds, thresholds: Thresholds) -> list[Link]:
    """The pre-ordered path, from calibration only: the no-op, then one gate lowered at a time.

    Each step lowers one gate to its next budget that changes calibration savings; of the gates the
    one with the largest Δsavings / (Δsuccesses lost + ½), ties → the later round. The aborted sets
    are nested. No table over candidates is built, so a finer grid costs next to nothing.
    """
    m = bins(calibration, thresholds)
    E, G = m.shape
    B = len(thresholds.grid)
    vector = [_top(thresholds, r) for r in range(G)]
    gate = np.full(E, G, dtype=np.int64)  # 0-based gate of the abort; G = survives
    now: Ints = np.zeros(E, dtype=np.int64)
    links = [Link(tuple(vector), 0, 0)]
    success = calibration.success
    while True:
        best: tuple[int, int, int, int] | None = None
        for r in range(G):
            # Read by gate r and passed; aborting it there instead would gain the difference.
            gain = np.where((gate > r) & (m[:, r] > 0), calibration.saved[:, r] - now, 0)
            able = gain > 0
            if not able.any():
                continue
            level = int(m[able, r].max()) - 1
            newly = (gate > r) & (m[:, r] > level)
            saved = int(gain[newly].sum())
            lost = int((newly & success & (gate == G)).sum())
            # Δsaved / (Δlost + ½), compared without division; ≥ gives ties to the later round.
            if best is None or saved * (2 * best[1] + 1) >= best[0] * (2 * lost + 1):
                best = (saved, lost, r, level)
        if best is None:
            return links
        saved, lost, r, level = best
        newly = (gate > r) & (m[:, r] > level)
        gate[newly] = r
        now[newly] = calibration.saved[newly, r]
        vector[r] = level
        last = links[-1]
        links.append(Link(tuple(vector), last.saved + saved, last.lost + lost))
        assert len(links) <= G * B + 1


def _top(thresholds: Thresholds, gate: int) -> int:
    """Budget index at which a gate aborts nothing: its first "none", or one past the grid."""
    none = np.flatnonzero(np.isinf(thresholds.values[gate]))
    return int(none[-1]) if len(none) else len(thresholds.grid)


def chain_thresholds(thresholds: Thresholds, link: Link) -> tuple[float | None, ...]:
    """Thresholds of a link."""
    taus = [
        float(thresholds.values[r, b]) if b < len(thresholds.grid) else np.inf
        for r, b in enumerate(link.vector)
    ]
    return tuple(None if np.isinf(tau) else tau for tau in taus)


def chain_budget(thresholds: Thresholds, link: Link) -> tuple[str, ...]:
    """Budgets of a link; "1" where the gate aborts nothing and the grid has no such budget."""
    return tuple(thresholds.grid[b] if b < len(thresholds.grid) else "1" for b in link.vector)


@dataclass(frozen=True)
class Accepted:
    """How far the chain was accepted: `position` of the deployed link, 0 = the no-op.

    `kept` survivors of `successes` per link tested, `p_values` likewise, the first failure
    included. `needs`: successes that the first test needs at this level, where n is too small.
    """

    position: int
    successes: int
    kept: tuple[int, ...]
    p_values: tuple[float, ...]
    alpha: float
    needs: int | None
    reason: str | None = None


def accept(
    links: list[Link], thresholds: Thresholds, testing: Rounds, target: str, alpha: Fraction
) -> Accepted:
    """Test the links in order, stop at the first failure for good, deploy the last accepted.

    `alpha` is already shared among targets. Then P(deployed recall < ρ*) ≤ α over the testing
    sample: one episode per task, unseen by scorer, thresholds, grid and order.
    """
    rho = Fraction(target)
    n = testing.successes
    needed = smallest_rank(n, rho, alpha)  # p ≤ α iff K reaches it, exact
    m = bins(testing.take(testing.success), thresholds)
    kept: list[int] = []
    for link in links:
        kept.append(int((m <= np.array(link.vector)).all(axis=1).sum()))
        if needed is None or kept[-1] < needed:
            break
    failed = needed is None or kept[-1] < needed
    position = max(len(kept) - (2 if failed else 1), 0)
    few = smallest_n(rho, alpha) if needed is None else None
    reason = None
    if needed is None:
        reason = f"{n} testing successes cannot promise {target}: it needs {few}"
    elif position == 0:
        reason = (
            f"the first step keeps {kept[-1]} of {n} testing successes, {needed} were needed"
            if len(links) > 1
            else "no gate saves anything on calibration"
        )
    p_values = tuple(float(p) for p in tail(kept, n, float(rho)))
    return Accepted(position, n, tuple(kept), p_values, float(alpha), few, reason)


def hypotheses(thresholds: Thresholds) -> int:
    """M: distinct threshold vectors, counted on calibration; equal vectors are one policy."""
    count = 1
    for row in thresholds.values:
        count *= len(np.unique(row))
    return count


def full_search(
    searched: Searched, thresholds: Thresholds, target: str, alpha: Fraction
) -> tuple[Choice, dict[str, Any]]:
    """Accept every candidate with p_j ≤ α/M on the testing sample; the one that saves most.

    All accepted candidates hold together with confidence 1 − α, so choosing among them on the same
    sample costs nothing more.
    """
    M = hypotheses(thresholds)
    n, rho = searched.successes, Fraction(target)
    level = alpha / M
    rank = smallest_rank(n, rho, level)
    facts = {"hypotheses": M, "alpha_each": float(level), "needs": smallest_n(rho, level)}
    if rank is None:
        reason = (
            f"{n} testing successes cannot promise {target} among {M} policies: it needs "
            f"{facts['needs']}"
        )
        return Choice(None, n + 1, n, reason=reason), facts
    return choose(searched, rank), facts
