"""How the audit measures: AUROCs over folds and their intervals, and the rows of its table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.bootstrap import auroc, auroc_interval, cluster_weights, group_index

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SIGMAS = 3.0
"""Half width of a control's acceptance band, in standard deviations of an AUROC under chance."""
ONE_CLASS = "undefined: the episodes are of one class"
NO_FOLD = "undefined: no fold holds both classes"
VACUOUS = "too few episodes: no AUROC lies outside what is accepted"


def row(check: str, target: str = "-", variant: str = "-", **values: Any) -> dict[str, Any]:
    """A row of the table `audit` but for benchmark and agent; what is not given is 0 or null."""
    empty: dict[str, Any] = {
        **dict.fromkeys(("value", "fold_mean", "low", "high")),
        **dict.fromkeys(("n", "positives", "missing", "folds"), 0),
        "passed": None,
        "note": None,
    }
    unknown = values.keys() - empty.keys()
    if unknown:
        raise TypeError(f"no column of the table audit: {', '.join(sorted(unknown))}")
    return {"check": check, "target": target, "variant": variant, **empty, **values}


def fold_mean(scores: Floats, positive: Bools, fold: NDArray[np.int64]) -> tuple[Any, int]:
    """Mean of the per-fold AUROCs, and how many folds hold both classes; (None, 0) without any.

    Pooled out-of-fold AUROC of shuffled labels lies below ½: a fold that lacks a label's share in
    training has more of it in the fold itself. Within one fold that bias is gone.
    """
    found = [auroc(scores[fold == f], positive[fold == f]) for f in np.unique(fold)]
    known = [value for value in found if value is not None]
    return (float(np.mean(known)), len(known)) if known else (None, 0)


def acceptance(positives: int, negatives: int) -> tuple[float, float]:
    """½ ± 3·√((n₁+n₀+1)/(12·n₁·n₀)): where the AUROC of a score that knows nothing may lie.

    >>> low, high = acceptance(50, 50)
    >>> round(low, 4), round(high, 4)
    (0.3259, 0.6741)
    """
    n1, n0 = positives, negatives
    half = SIGMAS * math.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    return 0.5 - half, 0.5 + half


def measured(
    check: str,
    target: str,
    variant: str,
    scores: Floats,
    positive: Bools,
    fold: NDArray[np.int64],
    group: NDArray[np.object_],
    *,
    resamples: int,
    seed: int,
    note: str | None = None,
) -> dict[str, Any]:
    """Pooled AUROC of n scores (larger means positive) with its cluster interval, and per fold.

    NaN scores are left out and counted.
    """
    seen = ~np.isnan(scores)
    names, index = group_index(group[seen])
    weights = cluster_weights(len(names), resamples, seed)
    found = auroc_interval(scores[seen], positive[seen], index, weights)
    mean, folds = fold_mean(scores[seen], positive[seen], fold[seen])
    why = note or (ONE_CLASS if found.point is None else found.note)
    return row(
        check,
        target,
        variant,
        value=found.point,
        fold_mean=mean,
        low=found.low,
        high=found.high,
        n=int(seen.sum()),
        positives=int(positive[seen].sum()),
        missing=int((~seen).sum()),
        folds=folds,
        note=why,
    )


def control(
    check: str,
    target: str,
    variant: str,
    scores: Floats,
    positive: Bools,
    fold: NDArray[np.int64],
    note: str | None = None,
) -> dict[str, Any]:
    """A score fitted to permuted labels: passes iff |mean of per-fold AUROCs − ½| is within chance.

    The pooled AUROC is printed and not tested.
    """
    seen = ~np.isnan(scores)
    scores, positive, fold = scores[seen], positive[seen], fold[seen]
    mean, folds = fold_mean(scores, positive, fold)
    kept = np.isin(fold, [f for f in np.unique(fold) if len(set(positive[fold == f])) == 2])
    n1, n0 = int((positive & kept).sum()), int((~positive & kept).sum())
    counts = {
        "n": n1 + n0,
        "positives": n1,
        "missing": int((~seen).sum()),
        "folds": folds,
    }
    if mean is None:
        return row(check, target, variant, note=note or NO_FOLD, **counts)
    low, high = acceptance(n1, n0)
    vacuous = low <= 0 and high >= 1  # a check that nothing fails has not passed
    return row(
        check,
        target,
        variant,
        value=auroc(scores, positive),
        fold_mean=mean,
        low=low,
        high=high,
        passed=None if vacuous else low <= mean <= high,
        note=note or (VACUOUS if vacuous else None),
        **counts,
    )
