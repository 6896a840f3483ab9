"""What a promise costs, before any data are seen (the paper, "The Cost of Independent
Post-Selection Certification")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.cascade.bounds import compare_tail, lower_bound, smallest_n, tail
from sentinel.errors import UserError
from sentinel.exact import decimal_text

LOST = (0, 1, 2, 5)
GAPS = ("0.02", "0.03", "0.05")
LARGEST = 200_000
"""Successes beyond which the planner gives up: nobody has them."""


def open_share(value: str | float | Fraction, name: str) -> str:
    """The decimal text of a share in (0, 1); raises UserError otherwise."""
    text = decimal_text(value, name)
    if not 0 < Fraction(text) < 1:
        raise UserError(
            f"{name} {text} lies outside (0, 1)",
            f"give {name} as in 0.95"
            + (" (no finite sample can promise 1)" if name == "target" else ""),
        )
    return text


@lru_cache(maxsize=4096)
def successes_needed(target: Fraction, alpha: Fraction, lost: int = 0) -> int:
    """Fewest successes of which `lost` may be lost while the bound still exceeds the target.

    >>> [successes_needed(Fraction("0.95"), Fraction("0.05"), lost) for lost in LOST]
    [59, 93, 124, 208]
    """
    n = (smallest_n(target, alpha, strict=True) or 1) + lost
    low, high = n, n
    while compare_tail(high - lost, high, target, alpha) >= 0:
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        if compare_tail(middle - lost, middle, target, alpha) < 0:
            high = middle
        else:
            low = middle + 1
    return high


def certifiable(n: int, alpha: str | float | Fraction) -> float | None:
    """The bound that n successes give when none is lost: α^(1/n); None for n = 0."""
    return lower_bound(n, n, alpha)


@lru_cache(maxsize=256)
def successes_for_power(
    target: Fraction, recall: Fraction, alpha: Fraction, power: Fraction
) -> int | None:
    """Successes from which on a policy of true `recall` passes with at least this `power`.

    The chance of passing is a saw-tooth in n; the number given is the one after its last dip
    below `power`. None where recall ≤ target, or beyond LARGEST.

    >>> f = lambda r: successes_for_power(*map(Fraction, ("0.95", r, "0.05", "0.8")))
    >>> [f(r) for r in ("0.97", "0.98", "1")]
    [694, 286, 59]
    """
    if recall <= target:
        return None
    if recall >= 1:
        return smallest_n(target, alpha, strict=True)
    top = 256
    while top <= 2 * LARGEST:
        n = np.arange(1, top + 1)
        k = passing(n, target, alpha)
        short = np.flatnonzero((k > n) | (tail(k, n, float(recall)) < float(power)))
        last = int(n[short[-1]]) if len(short) else 0
        # A dip beyond the last one seen is nearer than twice its n.
        if last < top // 2:
            return last + 1
        top *= 2
    return None


def passing(n: NDArray[np.int64], target: Fraction, alpha: Fraction) -> NDArray[np.int64]:
    """Fewest survivors among n successes whose bound exceeds the target; n + 1 where none does."""
    low, high = np.ones_like(n), n + 1
    while (low < high).any():
        middle = (low + high) // 2
        found = tail(middle, n, float(target))
        close = np.flatnonzero(np.abs(found / float(alpha) - 1) < 1e-9)
        ok = (found < float(alpha)) | (middle > n)
        for i in close:
            ok[i] = compare_tail(int(middle[i]), int(n[i]), target, alpha) < 0
        low, high = np.where(ok | (low >= high), low, middle + 1), np.where(ok, middle, high)
    return high


def plan(
    targets: Sequence[str | float],
    alpha: str | float = "0.05",
    lost: Sequence[int] = LOST,
    power: str | float = "0.8",
    gaps: Sequence[str | float] = GAPS,
    shared: int = 1,
) -> dict[str, Any]:
    """Successes each target costs: per number lost, and for `power` at true recall target + gap.

    `shared` targets or policies on one sample share α. Raises UserError for numbers that make no
    sense. The counts hold for any scorer: only successes of independent tasks enter.
    """
    names = [open_share(t, "target") for t in targets]
    level, chance = open_share(alpha, "alpha"), open_share(power, "power")
    if not names or len(set(names)) != len(names):
        raise UserError("no target, or one given twice", "give each once, as in --target 0.9 0.95")
    if shared < 1 or any(n < 0 for n in lost):
        raise UserError("numbers of targets and losses must not be negative", "change --lost")
    each = Fraction(level) / shared
    rows = []
    for name in names:
        rho = Fraction(name)
        at = [(decimal_text(g, "gap"), rho + Fraction(decimal_text(g, "gap"))) for g in gaps]
        rows.append(
            {
                "target": name,
                "lost": {str(n): successes_needed(rho, each, n) for n in lost},
                "power": {
                    gap: successes_for_power(rho, recall, each, Fraction(chance))
                    for gap, recall in at
                    if recall <= 1
                },
            }
        )
    return {
        "version": 1,
        "alpha": level,
        "alpha_each": float(each),
        "shared_by": shared,
        "power": chance,
        "targets": rows,
    }


def missing_successes(target: Fraction, alpha: Fraction, have: int, lost: int = 0) -> int:
    """How many more successes the promise needs at the present number lost; 0 where enough."""
    return max(0, math.ceil(successes_needed(target, alpha, lost) - have))
