"""Blocks of resamples are the whole, bit for bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.bootstrap import auroc_interval, cluster_weights, concordance
from sentinel.decide import blocks
from sentinel.decide.blocks import Counts, DrawBlock, gather


@given(groups=st.integers(0, 8), start=st.integers(0, 40), size=st.integers(0, 40))
def test_rows_of_weights_from_a_start_are_those_of_the_whole(groups: int, start: int, size: int):
    whole = cluster_weights(groups, start + size, 7)
    np.testing.assert_array_equal(cluster_weights(groups, size, 7, start), whole[start:])


def test_passing_over_many_rows_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sentinel.bootstrap._SKIP", 3)
    np.testing.assert_array_equal(cluster_weights(5, 4, 1, 10), cluster_weights(5, 14, 1)[10:])


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_draws_in_any_cut_give_the_interval_of_the_whole(
    size: int, monkeypatch: pytest.MonkeyPatch
):
    """Rare positives: some resamples have none, are null in their block and counted as dropped."""
    rng = np.random.default_rng(3)
    groups, n, resamples = 12, 90, 64
    index = np.r_[np.arange(groups), rng.integers(0, groups, n - groups)]
    scores, positive = rng.normal(size=n), index < 2
    name = ("auroc_withhold", "deployed", "-")
    counts = Counts("b", "a", 42, groups, {name: concordance(scores, positive, index, groups)})
    monkeypatch.setattr(blocks, "BLOCK", size)
    parts: list[DrawBlock] = list(blocks.blocks([counts], resamples))
    assert len(parts) == -(-resamples // size)
    tables: list[pa.Table] = [
        blocks.block([counts], part)["bootstrap_draws"] for part in reversed(parts)
    ]
    weights = cluster_weights(groups, resamples, 42)
    direct = auroc_interval(scores, positive, index, weights)
    found = auroc_interval(scores, positive, index, weights, gather(tables)[name])
    assert found == direct
    assert direct.dropped > 0
    assert direct.low is not None
