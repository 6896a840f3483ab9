"""The cluster bootstrap: groups are resampled, AUROC is exact, undefined is None."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from sentinel.bootstrap import (
    TOO_FEW,
    auroc,
    auroc_interval,
    cluster_weights,
    concordance,
    group_index,
    mean_interval,
    ratio_interval,
)

RNG = np.random.default_rng(1)


def test_weights_are_multinomial_and_reproducible() -> None:
    """Each resample draws as many groups as there are; the seed decides."""
    w = cluster_weights(17, 500, seed=3)
    assert w.shape == (500, 17)
    assert (w.sum(axis=1) == 17).all()
    assert (w == np.round(w)).all()
    assert (w == cluster_weights(17, 500, seed=3)).all()
    assert not (w == cluster_weights(17, 500, seed=4)).all()
    assert abs(w.mean() - 1) < 0.01
    assert abs(w.var() - 16 / 17) < 0.1
    assert cluster_weights(0, 5).shape == (5, 0)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
def test_auroc_equals_scikit_learn_in_every_resample(seed: int) -> None:
    """With ties, to 1e-12; resamples without both classes are dropped and counted."""
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(8, 60)), int(rng.integers(2, 12))
    index = rng.integers(0, size, n)
    scores = rng.integers(0, 6, n) / 3
    y = rng.random(n) < 0.4
    if y.all() or not y.any():
        assert auroc(scores, y) is None
        return
    weights = cluster_weights(size, 40, seed)
    draws = concordance(scores, y, index, size).resampled(weights)
    expected = []
    for w in weights:
        rows = w[index]
        if rows[y].sum() and rows[~y].sum():
            expected.append(roc_auc_score(y, scores, sample_weight=rows))
    np.testing.assert_allclose(draws, expected, atol=1e-12, rtol=0)
    assert auroc(scores, y) == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
    found = auroc_interval(scores, y, index, weights)
    assert found.resamples + found.dropped == 40
    assert found.resamples == len(expected)


def test_auroc_over_many_distinct_scores() -> None:
    """More distinct scores than one block holds."""
    scores, y = RNG.normal(size=9000), RNG.random(9000) < 0.3
    scores[::7] = 0.25
    index = RNG.integers(0, 50, 9000)
    counts = concordance(scores, y, index, 50)
    assert counts.auroc == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
    w = cluster_weights(50, 2)
    expected = [roc_auc_score(y, scores, sample_weight=row[index]) for row in w]
    np.testing.assert_allclose(counts.resampled(w), expected, atol=1e-12)


def test_ratio_equals_resampling_the_rows() -> None:
    """Weights × group sums give what repeating the drawn groups' rows gives."""
    names = [f"g{i}" for i in RNG.integers(0, 30, 400)]
    values = RNG.normal(size=400)
    distinct, index = group_index(names)
    weights = cluster_weights(len(distinct), 200, 5)
    means = []
    for w in weights:
        rows = np.repeat(np.arange(400), w[index].astype(int))
        means.append(values[rows].mean())
    found = mean_interval(values, names, 200, 5)
    assert found.point == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(np.percentile(means, [2.5, 97.5]))
    assert found.low is not None
    assert found.low < values.mean() < (found.high or 0)


def test_groups_widen_the_interval() -> None:
    """Copies of one question add rows, not certainty."""
    values = np.repeat(RNG.normal(size=40), 25)
    groups = np.repeat(np.arange(40), 25)
    clustered = mean_interval(values, groups)
    alone = mean_interval(values, np.arange(1000))
    assert clustered.low is not None
    assert alone.low is not None
    width = [i.high - i.low for i in (clustered, alone) if i.high is not None and i.low is not None]
    assert width[0] > 3 * width[1]


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        (np.arange(20.0), np.zeros(20)),  # a single cluster: no interval, not zero width
        (np.arange(18.0), np.arange(18) // 2),  # nine
        (np.ones(100), np.arange(100)),  # no variety
    ],
)
def test_too_few_groups_give_no_interval(values: np.ndarray, groups: np.ndarray) -> None:
    """The point stands, the interval is None, and the note says why."""
    found = mean_interval(values, groups)
    assert found.point == values.mean()
    assert found.low is found.high is None
    assert found.note == TOO_FEW
    assert not found.dagger


def test_undefined_is_none() -> None:
    """No rows, no denominator, one class."""
    assert mean_interval([], []).point is None
    w = cluster_weights(12)
    nothing = ratio_interval(np.zeros(12), np.zeros(12), w, n=0)
    assert nothing.point is None
    assert nothing.low is None
    y = np.ones(30, dtype=bool)
    found = auroc_interval(np.arange(30.0), y, np.arange(30) % 12, w)
    assert found.point is None
    assert found.dropped == 2000
    assert auroc([], []) is None
    assert auroc([np.nan, 1.0], [True, False]) is None


def test_dagger_is_strict() -> None:
    """An interval that touches 0 does not exclude it."""
    w = cluster_weights(30)
    gain = np.zeros(30)
    gain[:12] = 1
    found = ratio_interval(gain, np.ones(30), w, n=30, clusters=12)
    assert found.dagger
    touching = ratio_interval(gain, np.ones(30), w, n=30, clusters=12, offset=found.low or 0)
    assert touching.low == 0
    assert not touching.dagger
