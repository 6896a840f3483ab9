"""Exact binomial bounds: Clopper–Pearson at one level, and the conformal rank.

A bound is never compared as a rounded quantile: `bound(k, n) ≥ t` holds iff P(Bin(n, t) ≥ k) ≤ α,
and where the two sides of that lie within rounding of each other they are compared as integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

_CLOSE = 1e-9
"""Relative distance under which float64 does not decide a comparison."""


def lower_bound(k: int, n: int, alpha: str | float | Fraction) -> float | None:
    """One-sided Clopper–Pearson lower bound on a rate with k of n; None for n = 0.

    0 if k = 0; α^(1/n) if k = n; else the Beta(k, n − k + 1) quantile at α.

    >>> lower_bound(0, 5, 0.05), lower_bound(0, 0, 0.05)
    (0.0, None)
    >>> round(lower_bound(114, 114, 0.05), 4)
    0.9741
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n}")
    level = float(Fraction(alpha))
    if n == 0:
        return None
    if k == 0:
        return 0.0
    if k == n:
        return float(level ** (1 / n))
    return float(betaincinv(k, n - k + 1, level))


def tail(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """P(Bin(n, p) ≥ k), elementwise; 1 for k ≤ 0 and 0 for k > n."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    inside = (k > 0) & (k <= n)
    found = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), p)
    return np.asarray(np.where(inside, found, np.where(k <= 0, 1.0, 0.0)))


def compare_tail(k: int, n: int, p: Fraction, alpha: Fraction) -> int:
    """Sign of P(Bin(n, p) ≥ k) − α, exact.

    >>> compare_tail(2, 2, Fraction("0.5"), Fraction("0.25"))
    0
    """
    rough = float(tail(k, n, float(p))) / float(alpha) - 1
    if abs(rough) > _CLOSE:
        return 1 if rough > 0 else -1
    a, d = p.numerator, p.denominator
    above = sum(math.comb(n, j) * a**j * (d - a) ** (n - j) for j in range(max(k, 0), n + 1))
    left, right = above * alpha.denominator, alpha.numerator * d**n
    return (left > right) - (left < right)


@lru_cache(maxsize=1 << 16)
def smallest_rank(n: int, t: Fraction, alpha: Fraction, strict: bool = False) -> int | None:
    """k*: the smallest k in 1…n whose Clopper–Pearson bound reaches t; None where none does.

    `strict`: whose bound exceeds t.

    >>> [smallest_rank(n, Fraction("0.9"), Fraction("0.05")) for n in (28, 29, 46)]
    [None, 29, 45]
    """

    def reaches(k: int) -> bool:
        return compare_tail(k, n, t, alpha) < (0 if strict else 1)

    if n == 0 or not reaches(n):
        return None
    low, high = 1, n  # reaches(high); the tail falls as k grows
    while low < high:
        middle = (low + high) // 2
        if reaches(middle):
            high = middle
        else:
            low = middle + 1
    return high


def conformal_rank(n: int, t: Fraction) -> int | None:
    """⌈(n + 1)·t⌉, exact; None where it exceeds n.

    >>> conformal_rank(19, Fraction("0.95")), conformal_rank(18, Fraction("0.95"))
    (19, None)
    """
    rank = math.ceil((n + 1) * t)
    return rank if rank <= n else None


@lru_cache(maxsize=1024)
def smallest_n(t: Fraction, alpha: Fraction, strict: bool = False) -> int | None:
    """Fewest successes, none lost, whose bound reaches (`strict`: exceeds) t; None for t = 1.

    >>> [smallest_n(Fraction(t), Fraction("0.05")) for t in ("0.85", "0.9", "0.95", "0.98", "0.99")]
    [19, 29, 59, 149, 299]
    """
    if t >= 1:
        return None
    if t <= 0:
        return 1
    n = max(1, math.floor(math.log(alpha) / math.log(t)) - 1)
    while compare_tail(n, n, t, alpha) >= (0 if strict else 1):
        n += 1
    while n > 1 and compare_tail(n - 1, n - 1, t, alpha) < (0 if strict else 1):
        n -= 1
    return n


def rate_for_power(n: int, k: int, power: float) -> float:
    """Smallest true rate p at which P(Bin(n, p) ≥ k) ≥ `power`, for 1 ≤ k ≤ n."""
    return float(betaincinv(k, n - k + 1, power))
