"""Isotonic maps, bins and logits."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from sentinel.calibrate import IsotonicMap, OneClassError, fit_isotonic, logit, reliability, sigmoid

RNG = np.random.default_rng(0)
scores = st.floats(-40, 40).map(lambda x: round(x, 1))


@given(st.lists(st.tuples(scores, st.booleans()), min_size=2, max_size=60))
def test_equals_scikit_learn_and_is_monotone(rows: list[tuple[float, bool]]) -> None:
    """On well separated scores the fit is scikit-learn's; it never decreases."""
    x, y = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    if y.all() or not y.any():
        with pytest.raises(OneClassError):
            fit_isotonic(x, y)
        return
    found = fit_isotonic(x, y)
    expected = IsotonicRegression(out_of_bounds="clip").fit(x, y.astype(float))
    at = np.concatenate([x, RNG.uniform(-50, 50, 50)])
    np.testing.assert_allclose(found(at), expected.predict(at), atol=1e-9)
    assert (np.diff(found(np.sort(at))) >= -1e-15).all()
    assert (np.diff(found.x) > 0).all()
    assert (np.diff(found.y) >= 0).all()


def test_neighbouring_floats_stay_apart() -> None:
    """Scores one ulp apart are two scores (float32 merging would make 0.5 of both)."""
    low = 0.3
    high = float(np.nextafter(low, 1))
    found = fit_isotonic([low, high], [False, True])
    assert found([low, high]).tolist() == [0.0, 1.0]


def test_block_values_are_exact_fractions() -> None:
    """A block's value is the correctly rounded quotient of its counts."""
    x = RNG.integers(0, 30, 500) / 7
    y = RNG.random(500) < sigmoid(x - 2)
    found = fit_isotonic(x, y)
    for value in set(found.y):
        near = Fraction(value).limit_denominator(500)
        assert float(near) == value
    assert sum(found(x)) == pytest.approx(y.sum())  # isotonic fits keep the mean


def test_nan_never_gets_a_value_and_is_counted() -> None:
    """NaN in, NaN out, also through a map with a single knot; outside it is constant."""
    found = fit_isotonic([1.0, 2.0, np.nan], [0, 1, 1])
    assert found.missing == 1
    assert found.rows == 2
    assert found([-9.0, 9.0]).tolist() == [0.0, 1.0]
    assert np.isnan(found(np.nan))
    single = fit_isotonic([1.0, 1.0], [0, 1])
    assert single([0.0, 1.0, 5.0]).tolist() == [0.5] * 3
    assert np.isnan(single([np.nan])[0])
    for x, y in (([], []), ([np.nan, 1.0], [0, 1]), ([1.0, 2.0], [1, 1])):
        with pytest.raises(OneClassError):
            fit_isotonic(x, y)


def test_a_map_read_back_decides_the_same() -> None:
    """Every float survives JSON."""
    x = RNG.normal(size=300)
    found = fit_isotonic(x, RNG.random(300) < sigmoid(x))
    again = IsotonicMap.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found
    at = RNG.normal(size=1000)
    assert (again(at) == found(at)).all()


def test_logit_ends_and_order() -> None:
    """0 and 1 get finite ends beyond all others; order and NaN are kept."""
    p = np.array([0.0, 5e-324, 1e-300, 0.2, 0.5, 0.8, np.nextafter(1, 0), 1.0])
    values = logit(p)
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0).all()
    assert np.isnan(logit([np.nan])[0])
    np.testing.assert_allclose(sigmoid(values), p, atol=1e-15)


def test_ece_and_bins() -> None:
    """Constant scores, edges, the last bin closed, fewer rows than bins, none at all."""
    assert reliability([0.9] * 10, [1] * 5 + [0] * 5)["ece"] == pytest.approx(0.4, abs=1e-15)
    found = reliability([0.3, 0.7, 1.0, 0.0, np.nan], [1, 1, 1, 0, 1])
    assert [b["n"] for b in found["bins"]] == [1, 0, 0, 1, 0, 0, 0, 1, 0, 1]
    assert found["missing"] == 1
    assert found["bins"][1]["confidence"] is None
    assert reliability([], [])["ece"] is None
