"""Clopper–Pearson is exact at its ends and at ties; ranks agree with the definition."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import reference_cascade as reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from sentinel.cascade import bounds

ALPHA = Fraction("0.05")


def test_ends_are_not_nan():
    assert bounds.lower_bound(0, 10, "0.05") == 0
    assert bounds.lower_bound(10, 10, "0.05") == pytest.approx(0.05**0.1)
    assert bounds.lower_bound(0, 0, "0.05") is None


@given(st.integers(1, 400), st.data())
def test_bound_is_the_beta_quantile(n: int, data: st.DataObject):
    k = data.draw(st.integers(1, n))
    expected = beta.ppf(0.05, k, n - k + 1)
    assert bounds.lower_bound(k, n, "0.05") == pytest.approx(expected, rel=1e-9)


def test_smallest_numbers_of_successes():
    found = [bounds.smallest_n(Fraction(t), ALPHA) for t in ("0.85", "0.9", "0.95", "0.98", "0.99")]
    assert found == [19, 29, 59, 149, 299]
    assert bounds.smallest_n(Fraction(1), ALPHA) is None
    for t, n in zip(("0.85", "0.9", "0.95", "0.98", "0.99"), found, strict=True):
        assert bounds.smallest_rank(n, Fraction(t), ALPHA) == n
        assert bounds.smallest_rank(n - 1, Fraction(t), ALPHA) is None


@given(
    st.integers(0, 60),
    st.sampled_from(["0.05", "0.5", "0.85", "0.9", "0.95", "1"]),
    st.sampled_from(["0.05", "0.1", "0.25", "0.5"]),
)
def test_rank_is_the_smallest_with_a_bound_that_reaches(n: int, t: str, alpha: str):
    p, level = Fraction(t), Fraction(alpha)
    ok = [k for k in range(1, n + 1) if reference.tail(k, n, p) <= level]
    assert bounds.smallest_rank(n, p, level) == (ok[0] if ok else None)
    strict = [k for k in range(1, n + 1) if reference.tail(k, n, p) < level]
    assert bounds.smallest_rank(n, p, level, strict=True) == (strict[0] if strict else None)


@pytest.mark.parametrize(("n", "t", "alpha"), [(1, "0.05", "0.05"), (2, "0.5", "0.25")])
def test_a_bound_equal_to_the_budget_reaches_it(n: int, t: str, alpha: str):
    assert bounds.smallest_rank(n, Fraction(t), Fraction(alpha)) == n
    assert bounds.smallest_rank(n, Fraction(t), Fraction(alpha), strict=True) is None


@given(st.integers(0, 80), st.sampled_from(["0.85", "0.9", "0.95", "0.98", "0.99", "1"]))
def test_conformal_rank(n: int, t: str):
    rank = bounds.conformal_rank(n, Fraction(t))
    exact = -(-(n + 1) * Fraction(t) // 1)
    assert rank == (int(exact) if exact <= n else None)


def test_tail_outside_its_range():
    assert bounds.tail([0, -1, 6, 3], 5, 0.5).tolist() == [1, 1, 0, 0.5]


def test_large_samples_stay_exact_and_quick():
    n = 20_000
    k = bounds.smallest_rank(n, Fraction("0.95"), ALPHA)
    assert k is not None
    found = bounds.tail(np.array([k, k - 1]), n, 0.95)
    assert found[0] <= 0.05 < found[1]
