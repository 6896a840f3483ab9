"""The encoder rule: another encoder is adopted if each head's out-of-fold AUROC gains 0.02.

Both encoders are read on the same episodes, folds and labels; the difference is resampled by
question template with both kept as they are, so that it measures templates and not fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sentinel.bootstrap import (
    Concordance,
    cluster_weights,
    concordance,
    group_index,
    percentile,
)
from sentinel.exact import decimal_text

MARGIN = "0.02"


def rule(
    candidate: ArrayLike,
    incumbent: ArrayLike,
    positive: ArrayLike,
    group: ArrayLike,
    *,
    margin: str = MARGIN,
    resamples: int = 2000,
    seed: int = 42,
) -> dict[str, Any]:
    """One head's comparison, JSON-able.

    Parameters
    ----------
    candidate, incumbent : (n,) out-of-fold logits; rows where either is NaN are left out of both
        and counted.
    positive : (n,) bool. group : (n,) question templates, the clusters.
    margin : AUROC that adoption asks for, a decimal; compared exactly, as integers.

    Returns `auroc`, `auroc_against`, `delta` with `low` and `high` (95 %, percentile), `adopted`
    (None where an AUROC is undefined), `n`, `positives`, `missing`, `clusters` and a `note`.

    >>> worse, better = [0.1, 0.3, 0.2, 0.4], [0.1, 0.2, 0.3, 0.4]
    >>> found = rule(better, worse, [False, False, True, True], list("abcd"), resamples=50)
    >>> found["auroc"], found["auroc_against"], found["delta"], found["adopted"]
    (1.0, 0.75, 0.25, True)
    """
    a, b = (np.asarray(x, dtype=np.float64) for x in (candidate, incumbent))
    seen = ~(np.isnan(a) | np.isnan(b))
    y = np.asarray(positive, dtype=bool)[seen]
    names, index = group_index(np.asarray(group, dtype=object)[seen])
    first = concordance(a[seen], y, index, len(names))
    second = concordance(b[seen], y, index, len(names))
    mine, other = _exact(first), _exact(second)
    missing = int((~seen).sum())
    found: dict[str, Any] = {
        "auroc": None if mine is None else float(mine),
        "auroc_against": None if other is None else float(other),
        "delta": None,
        "low": None,
        "high": None,
        "margin": float(margin),
        "adopted": None,
        "n": int(seen.sum()),
        "positives": int(y.sum()),
        "missing": missing,
        "clusters": len(names),
        "note": None,
    }
    if mine is None or other is None:
        return found | {"note": "undefined: the episodes are of one class"}
    weights = cluster_weights(len(names), resamples, seed)
    draws = first.resampled(weights) - second.resampled(weights)
    interval = percentile(float(mine - other), draws, resamples, len(y), len(names))
    notes = [interval.note, f"{missing} episodes without a score" if missing else None]
    return found | {
        "delta": interval.point,
        "low": interval.low,
        "high": interval.high,
        "adopted": mine - other >= Fraction(decimal_text(margin, "margin")),
        "note": "; ".join(n for n in notes if n) or None,
    }


def adopted(rows: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether every head gains the margin; None where one of them is undefined, or without any."""
    found = [row["adopted"] for row in rows]
    if not found or None in found:
        return None
    return all(found)


def _exact(counts: Concordance) -> Fraction | None:
    possible = int(counts.positives.sum()) * int(counts.negatives.sum())
    return Fraction(int(counts.pairs.sum()), 2 * possible) if possible else None
