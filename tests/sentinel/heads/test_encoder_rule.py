"""The encoder rule's arithmetic: exact at the margin, paired by template."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from sentinel.heads.encoder_rule import adopted, rule

GROUPS = np.repeat([f"g{i:02}" for i in range(25)], 8)


def made(seed: int, signal: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    positive = rng.random(len(GROUPS)) < 0.4
    return positive, signal * positive + rng.normal(size=len(GROUPS))


def test_the_difference_and_its_interval() -> None:
    positive, weak = made(0, 0.5)
    strong = weak + 1.5 * positive
    found = rule(strong, weak, positive, GROUPS, resamples=400)
    expected = roc_auc_score(positive, strong) - roc_auc_score(positive, weak)
    assert found["delta"] == pytest.approx(expected)
    assert found["low"] < found["delta"] < found["high"]
    assert found["low"] > 0
    assert found["adopted"]
    back = rule(weak, strong, positive, GROUPS, resamples=400)
    assert (back["delta"], back["low"]) == (-found["delta"], pytest.approx(-found["high"]))
    assert back["adopted"] is False
    same = rule(weak, weak, positive, GROUPS, resamples=400)
    assert (same["delta"], same["adopted"], same["low"]) == (0.0, False, None)
    assert "too few" in same["note"]


def test_a_gain_of_exactly_the_margin_is_adopted() -> None:
    """1 of 50 pairs: a float sum would have to be lucky."""
    positive = np.array([True] + [False] * 50)
    best = np.arange(51.0)[::-1].copy()
    one_lost = best.copy()
    one_lost[0], one_lost[1] = best[1], best[0]
    groups = [f"g{i}" for i in range(51)]
    assert rule(best, one_lost, positive, groups, resamples=20)["adopted"]
    assert not rule(best, one_lost, positive, groups, resamples=20, margin="0.0200001")["adopted"]


def test_what_is_undefined_is_said() -> None:
    positive, scores = made(1, 1.0)
    holes = np.where(np.arange(len(scores)) < 9, np.nan, scores)
    found = rule(holes, scores, positive, GROUPS, resamples=50)
    assert (found["missing"], found["n"], found["delta"]) == (9, len(scores) - 9, 0.0)
    assert "9 episodes without a score" in found["note"]
    one = rule(scores, scores, np.ones(len(scores), bool), GROUPS, resamples=50)
    assert (one["auroc"], one["delta"], one["adopted"]) == (None, None, None)
    few = rule(scores, -scores, positive, np.where(GROUPS < "g12", "a", "b"), resamples=50)
    assert (few["low"], few["high"]) == (None, None)
    assert few["adopted"]
    assert adopted([few, one]) is None
    assert adopted([]) is None
    assert adopted([few, few]) is True


@given(st.integers(0, 10_000), st.floats(0.1, 9))
def test_a_monotone_change_of_scores_changes_nothing(seed: int, scale: float) -> None:
    positive, a = made(seed, 1.0)
    _, b = made(seed + 1, 0.2)
    first = rule(a, b, positive, GROUPS, resamples=20)
    second = rule(np.arctan(a) * scale, b * scale, positive, GROUPS, resamples=20)
    assert first == second
