"""A logistic probe as plain coefficients: standardise, L2 with C = 1 (the paper, "Probes").

scikit-learn fits it; scoring is one numpy sum per row, in an order that does not depend on how many
rows are scored together: a threshold chosen on a table decides alike at run time, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
C = 1.0
_ITERATIONS = 5000


class OneClass(ValueError):
    """No probe can be fitted: there are no training rows, or they all ended alike."""


@dataclass(frozen=True)
class LogisticProbe:
    """`intercept + Σ coef · (x − mean) / scale`, with `mean`, `scale`, `coef` (d,) float64."""

    mean: Floats
    scale: Floats
    coef: Floats
    intercept: float

    @property
    def width(self) -> int:
        """d."""
        return len(self.coef)

    def logit(self, X: ArrayLike) -> Floats:
        """float64 logits of the positive class, (n,) for (n, d) and () for (d,); NaN where X is."""
        x = np.ascontiguousarray(X, dtype=np.float64)
        terms = self.coef * ((x - self.mean) / self.scale)
        # A sum over the contiguous axis, never a BLAS product: that one rounds by the batch's size.
        return np.asarray(np.add.reduce(terms, axis=-1) + self.intercept)

    def score(self, X: ArrayLike) -> Floats:
        """f: probability of the positive class, shaped as `logit`.

        >>> probe = fit_logistic([[0.0], [1.0], [2.0], [3.0]], [False, False, True, True])
        >>> round(float(probe.score([1.5])), 3), bool(probe.score([2.5]) > 0.5)
        (0.5, True)
        """
        return sigmoid(self.logit(X))


def sigmoid(logits: ArrayLike) -> Floats:
    """1 / (1 + e^−z), elementwise, without overflow; NaN stays NaN."""
    z = np.asarray(logits, dtype=np.float64)
    e = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, e) / (1.0 + e))


def fit_logistic(X: ArrayLike, y: ArrayLike) -> LogisticProbe:
    """Fit on (n, d) finite features and their (n,) outcomes, True = positive.

    A constant column is standardised by 1 and so carries no weight. The fit is convex: the same
    rows in any order give the same probe to within rounding.

    Raises OneClass where `y` lacks a class, ValueError for features that are not finite.
    """
    from sklearn.linear_model import LogisticRegression

    x, target = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=bool)
    if not len(target):
        raise OneClass("no episode to train on")
    if target.all() or not target.any():
        raise OneClass(f"all {len(target)} training episodes are of one class")
    if not np.isfinite(x).all():
        raise ValueError("features are not finite")
    mean, scale = x.mean(axis=0), x.std(axis=0)
    # float16 inputs and sums leave a constant column with a spread of rounding, not of zero.
    varies = scale > 1e-10 * np.maximum(np.abs(mean), 1.0)
    scale = np.where(varies, scale, 1.0)
    model = LogisticRegression(C=C, max_iter=_ITERATIONS)
    model.fit(np.where(varies, (x - mean) / scale, 0.0), target)
    return LogisticProbe(
        mean, scale, np.asarray(model.coef_[0], dtype=np.float64), float(model.intercept_[0])
    )
