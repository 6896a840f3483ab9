"""How well each scorer tells failures at each round, with cluster intervals and after matching.

*Matched*: only pairs of a failure and a success whose tasks have the same depth (or another number
the benchmark knows) are compared, so that nothing is gained by knowing which goals are hard.
*Gain*: two scorers on the same episodes and the same resamples, their difference. An AUROC of the
second below ½ counts as ½ there: pooled out of fold, a scorer that knows nothing lies below it, and
that is no merit of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentinel.bootstrap import Interval, cluster_weights, concordance, group_index, percentile
from sentinel.cascade.table import Rounds, from_table

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PLAIN, MATCHED = "failure_auroc", "failure_auroc_matched"
GAIN = "_gain"
Key = tuple[str, str, str | None, str]


@dataclass(frozen=True)
class Stratified:
    """Concordant pairs within strata: `pairs` (G, G) as in `bootstrap.Concordance`, summed over S
    strata; `positives`, `negatives` (S, G)."""

    pairs: Floats
    positives: Floats
    negatives: Floats

    @property
    def auroc(self) -> float | None:
        """Share of concordant pairs, a tie counts one half; None without any pair."""
        possible = float((self.positives.sum(axis=1) * self.negatives.sum(axis=1)).sum())
        return float(self.pairs.sum()) / (2 * possible) if possible else None

    def resampled(self, weights: Floats) -> Floats:
        """The same per resample, (resamples,); NaN where a resample holds no pair."""
        possible = ((weights @ self.positives.T) * (weights @ self.negatives.T)).sum(axis=1)
        found = np.einsum("rg,rg->r", weights @ self.pairs, weights)
        return np.divide(found, 2 * possible, out=np.full(len(weights), np.nan), where=possible > 0)


def stratified(
    scores: Floats, failed: Bools, stratum: Floats, index: Ints, n_groups: int
) -> Stratified:
    """Count concordant pairs within each value of `stratum`, all (n,); `index` names groups.

    >>> y = np.array([True, False, True, False])
    >>> s = np.array([0.9, 0.8, 0.3, 0.1])
    >>> groups = np.zeros(4, dtype=np.int64)
    >>> stratified(s, y, np.zeros(4), groups, 1).auroc
    0.75
    >>> stratified(s, y, np.array([1.0, 1.0, 2.0, 2.0]), groups, 1).auroc
    1.0
    """
    values = np.unique(stratum)
    pairs = np.zeros((n_groups, n_groups))
    positives, negatives = np.zeros((2, len(values), n_groups))
    for s, value in enumerate(values):
        rows = stratum == value
        found = concordance(scores[rows], failed[rows], index[rows], n_groups)
        pairs += found.pairs
        positives[s], negatives[s] = found.positives, found.negatives
    return Stratified(pairs, positives, negatives)


@dataclass(frozen=True, eq=False)
class AucItem:
    """One agent in one mode: its `round_scores`, the number to match by per task (`match`, None
    for no matching), and the scorer that the others are compared with."""

    benchmark: str
    agent: str
    mode: str
    table: pa.Table
    gates: int
    after_feedback: bool
    match: Mapping[str, float] | None
    reference: str
    resamples: int
    seed: int


def intervals(item: AucItem) -> dict[Key, Interval]:
    """Intervals by (statistic, system, λ = None, stratum), as `decide.evaluate.interval_table`
    takes them.

    Systems are scorers, or `probe - surface` for a gain; the stratum names mode and round. Episodes
    alive at the round with a known outcome and a score count; in strict mode only calibration
    tasks, which no scorer was fitted on and no policy is tested on.
    """
    cells = from_table(item.table, item.gates, item.after_feedback)
    by_scorer = {c.scorer: c for c in cells}
    first = cells[0]
    names, index = group_index(first.group)
    weights = cluster_weights(len(names), item.resamples, item.seed)
    depth = None
    if item.match is not None:
        depth = np.array([item.match.get(t, np.nan) for t in first.task], dtype=np.float64)
        if np.isnan(depth).all():
            depth = None
    judged = first.labelled & ((first.pool == "") | (first.pool == "calibration"))
    out: dict[Key, Interval] = {}
    for r in range(item.gates):
        stratum = f"{item.mode} r={r + 1}"
        for statistic, strata in _levels(depth, len(first)).items():
            usable = judged & first.alive[:, r] & ~np.isnan(strata)
            # Counted once per scorer: a gain needs no other rows unless scores are missing.
            for scorer, rounds in by_scorer.items():
                found = _one(rounds, r, usable, strata, index, weights)
                out[statistic, scorer, None, stratum] = found
            for scorer in by_scorer if item.reference in by_scorer else ():
                if scorer == item.reference:
                    continue
                two = (by_scorer[item.reference], by_scorer[scorer])
                system = f"{item.reference} - {scorer}"
                out[f"{statistic}{GAIN}", system, None, stratum] = _gain(
                    two, r, usable, strata, index, weights
                )
    return out


def _levels(depth: Floats | None, episodes: int) -> dict[str, Floats]:
    plain = {PLAIN: np.zeros(episodes)}
    return plain if depth is None else {**plain, MATCHED: depth}


def _one(
    rounds: Rounds, r: int, usable: Bools, strata: Floats, index: Ints, weights: Floats
) -> Interval:
    rows = usable & ~np.isnan(rounds.score[:, r])
    counts = _count(rounds, r, rows, strata, index, weights)
    draws = counts.resampled(weights)
    return percentile(
        counts.auroc,
        draws[~np.isnan(draws)],
        len(weights),
        int(rows.sum()),
        len(np.unique(index[rows])),
    )


def _gain(
    two: Sequence[Rounds], r: int, usable: Bools, strata: Floats, index: Ints, weights: Floats
) -> Interval:
    rows = usable & ~np.isnan(two[0].score[:, r]) & ~np.isnan(two[1].score[:, r])
    a, b = (_count(rounds, r, rows, strata, index, weights) for rounds in two)
    # np.maximum keeps NaN, where a resample holds no pair.
    draws = a.resampled(weights) - np.maximum(b.resampled(weights), 0.5)
    point = None if a.auroc is None or b.auroc is None else a.auroc - max(b.auroc, 0.5)
    kept = draws[~np.isnan(draws)]
    return percentile(point, kept, len(weights), int(rows.sum()), len(np.unique(index[rows])))


def _count(
    rounds: Rounds, r: int, rows: Bools, strata: Floats, index: Ints, weights: Floats
) -> Stratified:
    return stratified(
        rounds.score[rows, r], ~rounds.success[rows], strata[rows], index[rows], weights.shape[1]
    )
