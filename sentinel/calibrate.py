"""Isotonic maps stored as knots, reliability bins and the expected calibration error.

scikit-learn's isotonic regression merges float32 scores that lie one ulp apart and returns NaN
outside its range; here pools are formed on float64 logits with integer counts and exact
comparisons, so that a map read back from JSON decides exactly as the one that was fitted (the
paper, Section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
BIN_EDGES = tuple(i / 10 for i in range(11))
LOGIT_END = 745.0
"""Logit of a probability of exactly 0 (−) or 1: beyond every other float64's (−744.4, 36.7)."""


class OneClassError(ValueError):
    """A map was asked of rows that are all positive, all negative, or none at all."""


def logit(p: ArrayLike) -> FloatArray:
    """log(p / (1 − p)) in float64; exact 0 and 1 become ∓745, NaN stays NaN, ties stay ties.

    >>> logit([0.0, 0.5, 1.0]).tolist()
    [-745.0, 0.0, 745.0]
    """
    from scipy.special import logit as scipy_logit

    values = np.asarray(p, dtype=np.float64)
    return np.asarray(np.clip(scipy_logit(values), -LOGIT_END, LOGIT_END), dtype=np.float64)


def sigmoid(x: ArrayLike) -> FloatArray:
    """1 / (1 + exp(−x)) in float64."""
    from scipy.special import expit

    return np.asarray(expit(np.asarray(x, dtype=np.float64)), dtype=np.float64)


@dataclass(frozen=True)
class IsotonicMap:
    """A non-decreasing map: linear between its knots, constant outside them, NaN to NaN.

    `x` (strictly increasing scores) and `y` (block means) have one length; `rows` and `positives`
    count what it was fitted on, `missing` the rows without a score.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    rows: int
    positives: int
    missing: int = 0

    def __call__(self, scores: ArrayLike) -> FloatArray:
        """The map at `scores`, elementwise, in [0, 1]."""
        at = np.asarray(scores, dtype=np.float64)
        # Interpolation may overshoot the upper knot by an ulp; a single knot would hide NaN.
        values = np.clip(np.interp(at, self.x, self.y), self.y[0], self.y[-1])
        return np.asarray(np.where(np.isnan(at), np.nan, values), dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; floats survive because JSON writes their shortest exact text."""
        return {
            "x": list(self.x),
            "y": list(self.y),
            "rows": self.rows,
            "positives": self.positives,
            "missing": self.missing,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> IsotonicMap:
        """Inverse of `to_dict`."""
        return cls(
            tuple(map(float, data["x"])),
            tuple(map(float, data["y"])),
            data["rows"],
            data["positives"],
            data["missing"],
        )


def fit_isotonic(scores: ArrayLike, positive: ArrayLike) -> IsotonicMap:
    """Least-squares non-decreasing fit of a 0/1 target: pool adjacent violators, weight 1 per row.

    Parameters
    ----------
    scores : (n,) float64 logits; NaN rows are left out and counted.
    positive : (n,) bool.

    Raises OneClassError where the rows with a score hold fewer than two classes.

    >>> fit_isotonic([1.0, 2.0, 2.0, 3.0, 4.0], [0, 1, 0, 0, 1])([0.0, 2.0, 9.0]).tolist()
    [0.0, 0.3333333333333333, 1.0]
    """
    x = np.asarray(scores, dtype=np.float64)
    y = np.asarray(positive, dtype=bool)
    seen = ~np.isnan(x)
    missing = int((~seen).sum())
    x, y = x[seen] + 0.0, y[seen]  # + 0.0: one zero, not two
    if y.size == 0 or y.all() or not y.any():
        raise OneClassError(
            f"{y.size} rows with a score, {int(y.sum())} of them positive: a map needs both classes"
        )
    distinct, where = np.unique(x, return_inverse=True)
    totals = np.bincount(where, minlength=distinct.size).tolist()
    hits = np.bincount(where[y], minlength=distinct.size).tolist()
    # One block: [first index, last index, positives, rows]; means compared as integers.
    blocks: list[list[int]] = []
    for i, (k, n) in enumerate(zip(hits, totals, strict=True)):
        first = i
        while blocks and blocks[-1][2] * n >= k * blocks[-1][3]:
            first, _, k_last, n_last = blocks.pop()
            k, n = k + k_last, n + n_last
        blocks.append([first, i, k, n])
    knots_x: list[float] = []
    knots_y: list[float] = []
    for first, last, k, n in blocks:
        for index in (first, last) if first != last else (first,):
            knots_x.append(float(distinct[index]))
            knots_y.append(k / n)
    return IsotonicMap(tuple(knots_x), tuple(knots_y), int(y.size), int(y.sum()), missing)


def reliability(p: ArrayLike, positive: ArrayLike) -> dict[str, Any]:
    """Ten bins of 0.1 (the last one closed) and the expected calibration error.

    Rows without a probability are left out and counted. A bin without rows has null means; ECE of
    no rows is None.

    >>> reliability([0.9] * 10, [1] * 5 + [0] * 5)["ece"]
    0.4
    """
    values = np.asarray(p, dtype=np.float64)
    hit = np.asarray(positive, dtype=bool)
    seen = ~np.isnan(values)
    values, hit, missing = values[seen], hit[seen], int((~seen).sum())
    index = np.clip(np.searchsorted(BIN_EDGES, values, side="right") - 1, 0, 9)
    bins = []
    gap = 0.0
    for b in range(10):
        member = index == b
        n = int(member.sum())
        mean = math.fsum(values[member].tolist()) / n if n else None
        rate = int(hit[member].sum()) / n if n else None
        if mean is not None and rate is not None:
            gap += n * abs(mean - rate)
        bins.append(
            {
                "low": BIN_EDGES[b],
                "high": BIN_EDGES[b + 1],
                "n": n,
                "confidence": mean,
                "accuracy": rate,
            }
        )
    total = int(values.size)
    return {"ece": gap / total if total else None, "n": total, "missing": missing, "bins": bins}
