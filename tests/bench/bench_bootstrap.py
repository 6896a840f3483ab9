"""Cluster bootstrap against its plain practice: 2,000 AUROCs, and RS differences of all systems.

Baselines: `roc_auc_score(sample_weight)` once per resample; numpy's take once per resample, system
and λ. Pairs alternate (A B B A …); the median ratio is printed with its range.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentinel.bootstrap import cluster_weights, concordance, group_sums, mean_intervals

Floats = NDArray[np.float64]
AUROC_BAR, RS_BAR = 60.0, 100.0
AUROC_BASELINE_SECONDS = 2.8
"""Of 2,000 resamples of 2,000 rows; a baseline more than twice off is out of range."""
PAIRS = 7
SYSTEMS, LAMBDAS = 6, (1.0, 4.0, 9.0)


@dataclass(frozen=True)
class Data:
    """n rows in groups, with resampling weights."""

    index: NDArray[np.int64]
    scores: Floats
    positive: NDArray[np.bool_]
    gain: NDArray[np.int64]
    loss: NDArray[np.int64]
    weights: Floats

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.weights.shape[1]


def make(rows: int, groups: int, resamples: int, seed: int = 0) -> Data:
    """Seeded rows; gain and loss (rows, systems) as differences to always-abstain."""
    rng = np.random.default_rng(seed)
    gain, loss = rng.integers(-1, 2, (rows, SYSTEMS)), rng.integers(0, 2, (rows, SYSTEMS))
    return Data(
        np.concatenate([np.arange(groups), rng.integers(0, groups, rows - groups)]),
        rng.normal(size=rows),
        rng.random(rows) < 0.4,
        gain,
        loss,
        cluster_weights(groups, resamples, seed),
    )


def auroc_fast(data: Data) -> Floats:
    """Concordance counts once, then a quadratic form per resample."""
    counts = concordance(data.scores, data.positive, data.index, data.groups)
    return counts.resampled(data.weights)


def auroc_plain(data: Data) -> Floats:
    """One weighted AUROC per resample."""
    from sklearn.metrics import roc_auc_score

    return np.array(
        [
            roc_auc_score(data.positive, data.scores, sample_weight=w[data.index])
            for w in data.weights
        ]
    )


def rs_fast(data: Data) -> Floats:
    """Points and interval ends of all systems and λ from group sums; (3, systems · λ)."""
    columns = [
        group_sums(data.gain[:, s] - lam * data.loss[:, s], data.index, data.groups)
        for lam in LAMBDAS
        for s in range(SYSTEMS)
    ]
    size = group_sums(np.ones(len(data.index)), data.index, data.groups)
    many = [data.groups] * len(columns)
    found = mean_intervals(
        np.column_stack(columns), size, data.weights, n=len(data.index), clusters=many
    )
    return np.array([[i.point, i.low, i.high] for i in found], dtype=np.float64).T


def rs_plain(data: Data) -> Floats:
    """The rows of each resample taken anew for every system and λ."""
    members = [np.flatnonzero(data.index == g) for g in range(data.groups)]
    out = np.empty((len(data.weights), SYSTEMS * len(LAMBDAS)))
    for i, w in enumerate(data.weights):
        rows = np.concatenate([np.repeat(members[g], int(w[g])) for g in np.flatnonzero(w)])
        for j, lam in enumerate(LAMBDAS):
            for s in range(SYSTEMS):
                difference = data.gain[:, s] - lam * data.loss[:, s]
                out[i, j * SYSTEMS + s] = np.take(difference, rows).mean()
    points = [
        (data.gain[:, s] - lam * data.loss[:, s]).mean() for lam in LAMBDAS for s in range(SYSTEMS)
    ]
    return np.vstack([points, np.percentile(out, [2.5, 97.5], axis=0)])


def seconds(function: Callable[[Data], Floats], data: Data, repeat: int) -> float:
    """Mean wall seconds of one call."""
    start = time.perf_counter()
    for _ in range(repeat):
        function(data)
    return (time.perf_counter() - start) / repeat


def compare(
    fast: Callable[[Data], Floats], plain: Callable[[Data], Floats], data: Data, pairs: int
) -> tuple[list[float], float]:
    """(ratios of the pairs, median seconds of the baseline)."""
    np.testing.assert_allclose(fast(data), plain(data), atol=1e-12, rtol=0)
    ratios, slow = [], []
    for pair in range(pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        took = {}
        for which in order:
            took[which] = seconds(plain, data, 1) if which == 0 else seconds(fast, data, 5)
        ratios.append(took[0] / took[1])
        slow.append(took[0])
    return ratios, statistics.median(slow)


def main() -> int:
    """Print one line per bench; with --check, 1 where a whole range lies below its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    parser.add_argument("--tiny", action="store_true", help="small data: correctness only")
    args = parser.parse_args()
    size, pairs = ((200, 20, 50), 1) if args.tiny else ((2000, 170, 2000), PAIRS)
    data = make(*size)
    failed = False
    for name, fast, plain, bar in (
        ("bootstrap_auroc_speedup", auroc_fast, auroc_plain, AUROC_BAR),
        ("bootstrap_rs_speedup", rs_fast, rs_plain, RS_BAR),
    ):
        ratios, slow = compare(fast, plain, data, pairs)
        print(
            f"{name} {statistics.median(ratios):.1f} x "
            f"(range {min(ratios):.1f} to {max(ratios):.1f}, baseline {slow:.3f} s)"
        )
        known = AUROC_BASELINE_SECONDS if plain is auroc_plain and not args.tiny else None
        if args.check and known and not known / 2 <= slow <= known * 2:
            print(f"{name}: baseline out of range ({slow:.2f} s, {known} s)", file=sys.stderr)
            failed = True
        if args.check and max(ratios) < bar:
            print(f"{name}: below {bar:g} x", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
