"""The delivery estimator: the head alone, or a gradient-boosted hybrid (the paper, Section 4.1).

The hybrid reads the head's out-of-fold logit and the ten trajectory features at t = T. It is
trained on the train pool and chosen on the calibration pool, and only where it is clearly better.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.bootstrap import concordance
from sentinel.decide.table import Floats, Prefixes

PARAMETERS: dict[str, Any] = {
    "loss": "log_loss",
    "learning_rate": 0.05,
    "max_iter": 150,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 20,
    "l2_regularization": 1.0,
    "max_bins": 255,
    "early_stopping": False,
}
"""Fixed once; the version of scikit-learn is recorded because fits differ between versions."""


@dataclass(frozen=True)
class Selection:
    """Which estimator delivers, and why; AUROCs on the committed calibration answers, or None."""

    chosen: str  # head | hybrid
    reason: str
    auroc_head: float | None
    auroc_hybrid: float | None
    n: int
    trained_on: int


def committed(pool: Prefixes) -> Prefixes:
    """Episodes in which the agent committed an answer."""
    return pool.take(pool.answered)


def design(pool: Prefixes) -> Floats:
    """Head logit at T and the ten features at T, shape (E, 11); NaN is missing."""
    assert pool.features is not None
    # A log-probability may be −inf; the trees only need its order.
    features = np.clip(pool.features[pool.end], -1e300, 1e300)
    return np.column_stack([pool.score[pool.end], features])


def fit_hybrid(train: Prefixes, seed: int) -> Any | None:
    """Gradient boosting on the train pool's committed answers → good; None for one class."""
    answers = committed(train)
    if answers.features is None or answers.good.all() or not answers.good.any():
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier

    columns = design(answers)
    # A feature that is missing everywhere cannot be binned; as a constant no tree can use it.
    columns[:, np.isnan(columns).all(axis=0)] = 0.0
    model = HistGradientBoostingClassifier(random_state=seed, **PARAMETERS)
    return model.fit(columns, answers.good)


def hybrid_score(model: Any, pool: Prefixes) -> Floats:
    """Float64 logit of the hybrid at T of every episode, shape (E,)."""
    if not len(pool):
        return np.zeros(0)
    return np.asarray(model.decision_function(design(pool)), dtype=np.float64)


def select(model: Any | None, calibration: Prefixes, train: Prefixes, margin: str) -> Selection:
    """Hybrid iff its AUROC exceeds the head's by more than `margin`, compared as exact fractions.

    Both are read on the committed calibration answers that have a head score. Equality or an
    undefined AUROC keeps the head.
    """
    answers = committed(calibration)
    seen = answers.take(~np.isnan(answers.score[answers.end]))
    head = _exact_auroc(seen.score[seen.end], seen.good)
    hybrid = None if model is None else _exact_auroc(hybrid_score(model, seen), seen.good)
    trained = int(train.answered.sum())
    if model is None:
        if train.features is None:
            reason = f"no feature columns: {', '.join(train.missing_features)}"
        else:
            reason = "the train pool's committed answers lack a class"
    elif head is None or hybrid is None:
        reason = "AUROC undefined on the calibration pool"
    elif hybrid > head + Fraction(margin):
        reason = f"AUROC better by more than {margin}"
    else:
        reason = f"AUROC not better by more than {margin}"
    better = head is not None and hybrid is not None and hybrid > head + Fraction(margin)
    return Selection(
        "hybrid" if better else "head",
        reason,
        None if head is None else float(head),
        None if hybrid is None else float(hybrid),
        len(seen),
        trained,
    )


def _exact_auroc(scores: Floats, positive: NDArray[np.bool_]) -> Fraction | None:
    counts = concordance(scores, positive, np.zeros(len(scores), dtype=np.int64), 1)
    possible = int(counts.positives[0]) * int(counts.negatives[0])
    return Fraction(int(counts.pairs[0, 0]), 2 * possible) if possible else None


def fingerprint(model: Any) -> str:
    """sha256 of what decides: the baseline and every node of every tree."""
    state = hashlib.sha256(np.asarray(model._baseline_prediction, dtype=np.float64).tobytes())
    for (tree,) in model._predictors:
        for name in tree.nodes.dtype.names:
            state.update(np.ascontiguousarray(tree.nodes[name]).tobytes())
    return state.hexdigest()


def dump(model: Any) -> bytes:
    """The model as a skops archive: no pickle, so that reading it runs no code."""
    import skops.io

    return bytes(skops.io.dumps(model))


def load(data: bytes) -> Any:
    """Read a skops archive that holds nothing but scikit-learn's and numpy's own types."""
    import skops.io

    unknown = [
        name
        for name in skops.io.get_untrusted_types(data=data)
        if not name.startswith(("sklearn.", "numpy.", "_loss."))
    ]
    if unknown:
        raise ValueError(f"the estimator's file holds foreign types: {', '.join(unknown)}")
    buffer = io.BytesIO(data)
    return skops.io.load(buffer, trusted=skops.io.get_untrusted_types(data=data))
