"""The logistic probe: the fit is scikit-learn's, and a row scores alike however many stand by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sentinel.probes.logistic import LogisticProbe, OneClass, fit_logistic, sigmoid


def made(n: int = 80, d: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(3, 2, (n, d))
    return X, X[:, 0] + rng.normal(0, 2, n) > 3


def test_the_coefficients_are_those_of_the_plain_pipeline():
    X, y = made()
    probe = fit_logistic(X, y)
    scaler = StandardScaler().fit(X)
    model = LogisticRegression(C=1.0, max_iter=5000).fit(scaler.transform(X), y)
    np.testing.assert_allclose(
        probe.score(X), model.predict_proba(scaler.transform(X))[:, 1], atol=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), d=st.integers(1, 300), n=st.integers(1, 40))
def test_a_row_scores_alike_alone_and_in_any_batch(seed: int, d: int, n: int):
    rng = np.random.default_rng(seed)
    probe = LogisticProbe(
        rng.normal(size=d), rng.uniform(0.1, 3, d), rng.normal(size=d), float(rng.normal())
    )
    X = rng.normal(0, 5, (n, d))
    whole = probe.score(X)
    alone = np.array([probe.score(x) for x in X])
    np.testing.assert_array_equal(whole, alone)
    np.testing.assert_array_equal(whole[::-1], probe.score(X[::-1]))


def test_a_constant_column_carries_no_weight():
    X, y = made()
    more = np.column_stack([X, np.full(len(X), 0.1), np.full(len(X), 1e6)])
    a, b = fit_logistic(X, y), fit_logistic(more, y)
    np.testing.assert_array_equal(b.coef[-2:], 0.0)
    np.testing.assert_allclose(b.score(more), a.score(X), atol=1e-5)


@pytest.mark.parametrize("y", [[], [True] * 3, [False] * 3])
def test_one_class_is_refused(y: list[bool]):
    with pytest.raises(OneClass):
        fit_logistic(np.zeros((len(y), 2)), y)


def test_features_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite"):
        fit_logistic([[0.0], [np.nan]], [True, False])


def test_a_missing_value_gives_no_score():
    X, y = made()
    probe = fit_logistic(X, y)
    X[3, 2] = np.nan
    assert list(np.flatnonzero(np.isnan(probe.score(X)))) == [3]


def test_sigmoid_keeps_small_values_and_does_not_overflow():
    z = np.array([-800.0, -40.0, 0.0, 40.0, 800.0, np.nan])
    p = sigmoid(z)
    assert p[1] == pytest.approx(np.exp(-40.0))
    assert (p[2], p[4], p[0]) == (0.5, 1.0, 0.0)
    assert np.isnan(p[5])
