"""Template-cluster bootstrap of means, ratios and AUROC (the paper, Appendix M).

Questions of one template are not independent, so whole groups are resampled. A resample is a row of
multinomial weights over groups: every statistic here is a function of group sums (or, for AUROC, of
concordance counts per pair of groups), so that 2,000 resamples are one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MIN_CLUSTERS = 10
"""Fewer groups that carry a difference than this give no interval."""
TOO_FEW = "too few groups"
_LEVELS = (2.5, 97.5)
_BLOCK = 2048
_SKIP = 4096
"""Rows drawn at a time where earlier rows are only passed over."""


@dataclass(frozen=True)
class Interval:
    """A point estimate with its percentile interval; None where it is undefined.

    `n` rows, `clusters` groups that carry the statistic, `resamples` kept, `dropped` where the
    statistic was undefined, `note` why there is no interval.
    """

    point: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    clusters: int = 0
    resamples: int = 0
    dropped: int = 0
    note: str | None = None

    @property
    def dagger(self) -> bool:
        """The interval excludes 0 strictly."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able fields."""
        return dict(self.__dict__)


def group_index(groups: Sequence[str] | ArrayLike) -> tuple[list[str], IntArray]:
    """Sorted distinct groups and each row's index among them, shape (n,)."""
    names = [str(g) for g in np.asarray(groups, dtype=object)]
    distinct = sorted(set(names))
    where = {name: i for i, name in enumerate(distinct)}
    return distinct, np.array([where[name] for name in names], dtype=np.int64)


def cluster_weights(
    n_groups: int, resamples: int = 2000, seed: int = 42, start: int = 0
) -> FloatArray:
    """How often each group is drawn in each resample, shape (resamples, n_groups).

    Each row is a multinomial draw of `n_groups` groups with replacement; the same seed gives the
    same weights on any machine, and all statistics of one pool share them (paired resamples).
    `start` passes over as many rows first: blocks one after the other are the whole.

    >>> cluster_weights(3, 4).sum(axis=1).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    if n_groups == 0:
        return np.zeros((resamples, 0))
    rng = np.random.Generator(np.random.PCG64(seed))
    share = np.full(n_groups, 1 / n_groups)
    for at in range(0, start, _SKIP):
        rng.multinomial(n_groups, share, size=min(_SKIP, start - at))
    draws = rng.multinomial(n_groups, share, size=resamples)
    return draws.astype(np.float64)


def group_sums(values: ArrayLike, index: IntArray, n_groups: int) -> FloatArray:
    """Sum of `values` (n,) within each group, shape (n_groups,)."""
    weights = np.asarray(values, dtype=np.float64)
    return np.asarray(np.bincount(index, weights=weights, minlength=n_groups), dtype=np.float64)


def ratio_interval(
    numerator: FloatArray,
    denominator: FloatArray,
    weights: FloatArray,
    *,
    n: int,
    clusters: int | None = None,
    offset: float = 0.0,
) -> Interval:
    """Percentile 2.5/97.5 interval of Σ_g w_g·numerator_g / Σ_g w_g·denominator_g − offset.

    Parameters
    ----------
    numerator, denominator : (n_groups,) group sums; a paired difference is one numerator.
    weights : (resamples, n_groups) from `cluster_weights`.
    n : rows behind the sums, only recorded.
    clusters : groups that carry the statistic; by default those with a denominator. Fewer than ten
        give no interval but the note "too few groups"; so does an interval of zero width.

    >>> w = cluster_weights(12)
    >>> ratio_interval(np.arange(12.0), np.full(12, 10.0), w, n=120).point
    0.55
    """
    carrying = int(np.count_nonzero(denominator)) if clusters is None else clusters
    total = float(denominator.sum())
    if total == 0:
        return Interval(None, n=n, clusters=carrying, note="undefined")
    point = float(numerator.sum()) / total - offset
    draws_n, draws_d = weights @ numerator, weights @ denominator
    kept = draws_d != 0
    return percentile(point, draws_n[kept] / draws_d[kept] - offset, len(weights), n, carrying)


def percentile(
    point: float | None, draws: FloatArray, resamples: int, n: int, clusters: int
) -> Interval:
    """Interval of the kept `draws`; the other resamples are counted as dropped."""
    kept, dropped = len(draws), resamples - len(draws)
    if point is None:
        return Interval(None, None, None, n, clusters, kept, dropped, "undefined")
    if clusters < MIN_CLUSTERS or kept == 0:
        return Interval(point, None, None, n, clusters, kept, dropped, TOO_FEW)
    low, high = np.percentile(draws, _LEVELS)
    return _bounded(point, low, high, n, clusters, kept, dropped)


def _bounded(
    point: float, low: float, high: float, n: int, clusters: int, kept: int, dropped: int
) -> Interval:
    if low == high:  # every resample alike: too little variety, not certainty
        return Interval(point, None, None, n, clusters, kept, dropped, TOO_FEW)
    return Interval(point, float(low), float(high), n, clusters, kept, dropped)


def mean_intervals(
    sums: FloatArray,
    size: FloatArray,
    weights: FloatArray,
    *,
    n: int,
    clusters: Sequence[int],
) -> list[Interval]:
    """Intervals of S means per row at once, in one matrix product.

    Parameters
    ----------
    sums : (n_groups, S) group sums of S statistics.
    size : (n_groups,) rows per group, shared by all; every group has some.
    weights : (resamples, n_groups) from `cluster_weights`.
    n : rows behind the sums, only recorded.
    clusters : S numbers of groups that carry each statistic, as for `ratio_interval`.
    """
    resamples = len(weights)
    if not size.size:
        return [Interval(None, n=n, resamples=resamples, note="undefined") for _ in clusters]
    points = (sums.sum(axis=0) / size.sum()).tolist()
    draws = (sums.T @ weights.T) / (weights @ size)
    lows, highs = np.percentile(draws, _LEVELS, axis=1, overwrite_input=True).tolist()
    return [
        Interval(point, None, None, n, carrying, resamples, 0, TOO_FEW)
        if carrying < MIN_CLUSTERS
        else _bounded(point, low, high, n, carrying, resamples, 0)
        for point, low, high, carrying in zip(points, lows, highs, clusters, strict=True)
    ]


def mean_interval(
    values: ArrayLike, groups: ArrayLike, resamples: int = 2000, seed: int = 42
) -> Interval:
    """Cluster interval of the mean of `values` (n,); `groups` (n,) names each row's group.

    >>> mean_interval([0.0, 1.0] * 30, [i // 3 for i in range(60)]).point
    0.5
    """
    data = np.asarray(values, dtype=np.float64)
    names, index = group_index(np.asarray(groups))
    size = len(names)
    sums, counts = group_sums(data, index, size), group_sums(np.ones(len(data)), index, size)
    return ratio_interval(sums, counts, cluster_weights(size, resamples, seed), n=len(data))


@dataclass(frozen=True)
class Concordance:
    """Twice the concordant pairs (ties count one) per pair of groups, and the classes per group.

    `pairs[g, h]` counts positives of group g against negatives of group h; all three are integers
    held in float64, exact below 2^53.
    """

    pairs: FloatArray
    positives: FloatArray
    negatives: FloatArray

    @property
    def auroc(self) -> float | None:
        """The AUROC of all rows; None where a class is missing."""
        possible = self.positives.sum() * self.negatives.sum()
        return float(self.pairs.sum() / (2 * possible)) if possible else None

    def resampled(self, weights: FloatArray) -> FloatArray:
        """AUROC of each resample that has both classes; shape (kept,), kept ≤ resamples."""
        possible = (weights @ self.positives) * (weights @ self.negatives)
        kept = possible > 0
        w = weights[kept]
        return np.einsum("rg,rg->r", w @ self.pairs, w) / (2 * possible[kept])


def concordance(
    scores: ArrayLike, positive: ArrayLike, index: IntArray, n_groups: int
) -> Concordance:
    """Count concordant pairs once, for all resamples.

    Parameters
    ----------
    scores : (n,) float64 without NaN; larger means positive.
    positive : (n,) bool.
    index : (n,) group of each row, in 0…n_groups − 1.
    """
    x = np.asarray(scores, dtype=np.float64)
    y = np.asarray(positive, dtype=bool)
    distinct, rank = np.unique(x, return_inverse=True)
    pairs = np.zeros((n_groups, n_groups))
    below = np.zeros(n_groups)  # negatives of each group below the current block of scores
    order = np.argsort(rank, kind="stable")
    rank, y, groups = rank[order], y[order], index[order]
    for start in range(0, distinct.size, _BLOCK):
        size = min(_BLOCK, distinct.size - start)
        rows = slice(*np.searchsorted(rank, [start, start + size]))
        here, owner, hit = rank[rows] - start, groups[rows], y[rows]
        cell = here[~hit] * n_groups + owner[~hit]
        neg = np.bincount(cell, minlength=size * n_groups).reshape(size, n_groups).astype(float)
        cumulated = np.cumsum(neg, axis=0)
        beaten = 2 * (below + cumulated) - neg  # twice: a tie counts one half
        by_group = np.argsort(owner[hit], kind="stable")
        who = owner[hit][by_group]
        if who.size:
            starts = np.flatnonzero(np.r_[True, who[1:] != who[:-1]])
            pairs[who[starts]] += np.add.reduceat(beaten[here[hit][by_group]], starts, axis=0)
        below = below + cumulated[-1]
    ones = np.ones(len(x))
    return Concordance(
        pairs, group_sums(ones[y], groups[y], n_groups), group_sums(ones[~y], groups[~y], n_groups)
    )


def auroc(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """AUROC with ties counted one half; None where a class is missing. NaN rows are left out.

    >>> auroc([0.1, 0.4, 0.4, 0.8], [False, False, True, True])
    0.875
    """
    x = np.asarray(scores, dtype=np.float64)
    seen = ~np.isnan(x)
    y = np.asarray(positive, dtype=bool)[seen]
    return concordance(x[seen], y, np.zeros(int(seen.sum()), dtype=np.int64), 1).auroc


def auroc_interval(
    scores: ArrayLike,
    positive: ArrayLike,
    index: IntArray,
    weights: FloatArray,
    draws: FloatArray | None = None,
) -> Interval:
    """Cluster interval of an AUROC; resamples without both classes are dropped and counted.

    Parameters
    ----------
    scores, positive : (n,); rows with a NaN score are left out, `n` counts the others.
    index : (n,) group of each row.
    weights : (resamples, n_groups) from `cluster_weights`.
    draws : (kept,) AUROCs of these very resamples where they are known; None computes them.
    """
    x = np.asarray(scores, dtype=np.float64)
    seen = ~np.isnan(x)
    y, where = np.asarray(positive, dtype=bool)[seen], index[seen]
    if draws is None:
        counts = concordance(x[seen], y, where, weights.shape[1])
        point = counts.auroc
        draws = counts.resampled(weights) if point is not None else np.zeros(0)
    else:
        point = auroc(x, positive)
    clusters = len(np.unique(where))
    return percentile(point, draws, len(weights), len(y), clusters)
