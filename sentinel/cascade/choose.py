"""The deployed budget: most savings among candidates that keep enough validation successes.

Counts are compared as integers: in floats 41/50 ≥ 0.80 + 0.02 is false.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sentinel.cascade.search import Searched

REDUCED_TARGETS = (Fraction("0.98"), Fraction("0.99"))
"""Targets whose margin is cut to (1 − ρ*)/2, because the full one would leave no room."""


@dataclass(frozen=True)
class Requirement:
    """Validation recall asked for: `recall` = ρ* + δ, or more where a certificate follows.

    `margin` the δ used, `reduced` whether it was cut; `reason` why the margin cannot serve.
    """

    target: Fraction
    recall: Fraction
    margin: Fraction
    reduced: bool = False
    reason: str | None = None

    def successes(self, n: int) -> int:
        """⌈n·recall⌉, exact.

        >>> requirement("0.8", "0.02").successes(50)
        41
        """
        return math.ceil(n * self.recall)


def requirement(target: str, margin: str, at_least: Fraction | None = None) -> Requirement:
    """What the search asks for at a target; `at_least` raises it for a certificate to follow."""
    rho, delta = Fraction(target), Fraction(margin)
    reduced = rho in REDUCED_TARGETS and delta > (1 - rho) / 2
    if reduced:
        delta = (1 - rho) / 2
    recall = rho + delta
    if recall > 1:
        reason = (
            f"the margin cannot serve this target: {target} + {margin} > 1; "
            f"the largest margin that can is {float(1 - rho):.6g}"
        )
        return Requirement(rho, recall, delta, reduced, reason)
    return Requirement(rho, max(recall, at_least or recall), delta, reduced)


@dataclass(frozen=True)
class Choice:
    """A candidate of the search, or none (`index` None) with the reason."""

    index: int | None
    needed: int
    successes: int
    kept: int | None = None
    saved: int | None = None
    reason: str | None = None


def choose(searched: Searched, needed: int, among: NDArray[np.intp] | None = None) -> Choice:
    """The candidate with K ≥ `needed` that saves most; ties → larger K → lexicographically larger
    budget. `among`: flat indices of the candidates allowed, ascending; None allows all.
    """
    n = searched.successes
    if n == 0:
        return Choice(None, needed, 0, reason="no success in validation, so no recall to search by")
    kept = searched.kept if among is None else searched.kept[among]
    saved = searched.saved if among is None else searched.saved[among]
    open_ = np.flatnonzero(kept >= needed)
    if not len(open_):
        best = int(kept.max()) if len(kept) else 0
        return Choice(
            None,
            needed,
            n,
            reason=f"no candidate keeps {needed} of {n} validation successes (the best keeps "
            f"{best})",
        )
    most = saved[open_]
    open_ = open_[most == most.max()]
    most = kept[open_]
    at = int(open_[most == most.max()][-1])  # C order: the last is lexicographically largest
    index = at if among is None else int(among[at])
    return Choice(index, needed, n, int(kept[at]), int(saved[at]))
