"""What each of the ten features adds to the correctness head (the paper, Appendix J, Table 6).

Second-level models on the folds of the heads, read out-of-fold on the answered, answerable train
episodes at T; intervals from resampled templates of fixed predictions. Fifty of them for five
agents, none corrected for their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.audit.pool import TrainPool
from sentinel.bootstrap import Interval, cluster_weights, concordance, group_index, percentile
from sentinel.decide.estimator import PARAMETERS
from sentinel.features import FAMILIES
from sentinel.heads.config import CORRECTNESS
from sentinel.tables import FEATURES

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ALWAYS_MISSING = "off: missing in every episode"


def screen(
    pool: TrainPool, *, resamples: int = 1000, seed: int = 42, estimator_seed: int = 42
) -> list[dict[str, Any]]:
    """Rows of the table `feature_screen`, but for benchmark and agent.

    Feature j: AUROC of a model on [head logit, feature j] − AUROC of the head. Hybrid: the same
    with all ten. Family: AUROC of the hybrid without it − AUROC of the hybrid. The model is the
    delivery estimator's gradient boosting, to which a missing value is a branch of its own.
    """
    use = pool.eligible(CORRECTNESS) & ~np.isnan(pool.logits[CORRECTNESS])
    good = pool.targets[CORRECTNESS][use] > 0.5
    head, fold = pool.logits[CORRECTNESS][use], pool.fold[use]
    # A log-probability may be −inf; the trees only need its order.
    features = np.clip(pool.features[use], -1e300, 1e300)
    names, index = group_index(pool.group[use])
    weights = cluster_weights(len(names), resamples, seed)
    absent = np.isnan(features)
    known = [j for j in range(len(FEATURES)) if not absent[:, j].all()]
    counts = {"n": len(good), "positives": int(good.sum()), "clusters": len(names)}

    def model(columns: Sequence[int]) -> Floats:
        table = np.column_stack([head, features[:, list(columns)]])
        return second_level(table, good, fold, estimator_seed)

    def compared(kind: str, name: str, columns: Sequence[int], base: Floats, scores: Floats) -> Any:
        gap = difference(scores, base, good, index, weights)
        some = int(absent[:, list(columns)].any(axis=1).sum())
        return _row(kind, name, gap, counts | {"missing": some})

    def off(kind: str, name: str, why: str) -> dict[str, Any]:
        nothing = Interval(None, note=why)
        return _row(kind, name, (nothing, None, None), counts | {"missing": len(good)})

    if not good.any() or good.all():
        why = "undefined: the answered, answerable train episodes are of one class"
        return [
            *(off("feature", name, why) for name in FEATURES),
            off("hybrid", "all", why),
            *(off("family", name, why) for name in FAMILIES),
        ]
    rows = []
    for j, name in enumerate(FEATURES):
        rows.append(
            compared("feature", name, [j], head, model([j]))
            if j in known
            else off("feature", name, ALWAYS_MISSING)
        )
    if not known:
        return [
            *rows,
            off("hybrid", "all", ALWAYS_MISSING),
            *(off("family", name, ALWAYS_MISSING) for name in FAMILIES),
        ]
    hybrid = model(known)
    rows.append(compared("hybrid", "all", known, head, hybrid))
    for name, members in FAMILIES.items():
        inside = [FEATURES.index(m) for m in members if FEATURES.index(m) in known]
        rest = [j for j in known if j not in inside]
        rows.append(
            compared("family", name, inside, hybrid, model(rest))
            if inside
            else off("family", name, ALWAYS_MISSING)
        )
    return rows


def second_level(columns: Floats, good: Bools, fold: NDArray[np.int64], seed: int) -> Floats:
    """Out-of-fold logits (n,) of gradient boosting on `columns` (n, k); NaN in a fold whose others
    hold one class."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    out = np.full(len(good), np.nan)
    for f in np.unique(fold):
        held = fold == f
        if len(set(good[~held])) < 2:
            continue
        table = columns.copy()
        # Missing in all training rows: it cannot be binned, and as a constant no tree uses it.
        table[:, np.isnan(table[~held]).all(axis=0)] = 0.0
        model = HistGradientBoostingClassifier(random_state=seed, **PARAMETERS)
        model.fit(table[~held], good[~held])
        out[held] = model.decision_function(table[held])
    return out


def difference(
    scores: Floats, base: Floats, good: Bools, index: NDArray[np.int64], weights: Floats
) -> tuple[Interval, float | None, float | None]:
    """AUROC(scores) − AUROC(base) with its paired cluster interval, and both AUROCs.

    Both are read on the rows that both score; `index` (n,) the rows' groups, `weights`
    (resamples, groups).
    """
    seen = ~np.isnan(scores) & ~np.isnan(base)
    groups = weights.shape[1]
    ours, theirs = (
        concordance(values[seen], good[seen], index[seen], groups) for values in (scores, base)
    )
    if ours.auroc is None or theirs.auroc is None:
        return Interval(None, note="undefined: one class"), None, None
    # The same rows in both: a resample lacks a class in both or in neither.
    draws = ours.resampled(weights) - theirs.resampled(weights)
    clusters = len(np.unique(index[seen]))
    point = ours.auroc - theirs.auroc
    found = percentile(point, draws, len(weights), int(seen.sum()), clusters)
    return found, theirs.auroc, ours.auroc


def _row(
    kind: str,
    name: str,
    found: tuple[Interval, float | None, float | None],
    counts: dict[str, int],
) -> dict[str, Any]:
    gap, base, ours = found
    return {
        "kind": kind,
        "name": name,
        "delta": gap.point,
        "low": gap.low,
        "high": gap.high,
        "auroc_base": base,
        "auroc_model": ours,
        **counts,
        "resamples": gap.resamples,
        "dropped": gap.dropped,
        "survivor": None if gap.low is None or kind == "family" else gap.low > 0,
        "note": gap.note,
    }
