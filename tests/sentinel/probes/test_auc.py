"""AUROCs within strata against a plain count, and gains on shared resamples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.bootstrap import auroc, cluster_weights
from sentinel.probes import score, split, table
from sentinel.probes.auc import AucItem, intervals, stratified


def plain(scores, failed, stratum, weight=None) -> float | None:
    """Weighted share of concordant pairs of one stratum, pair by pair."""
    weight = np.ones(len(scores)) if weight is None else weight
    hits = total = 0.0
    for i in np.flatnonzero(failed):
        for j in np.flatnonzero(~failed):
            if stratum[i] == stratum[j]:
                w = weight[i] * weight[j]
                total += w
                hits += w * ((scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j]))
    return hits / total if total else None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(1, 40), strata=st.integers(1, 4))
def test_pairs_are_counted_within_strata_only(seed: int, n: int, strata: int):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, n) / 5  # many ties
    failed, stratum = rng.random(n) < 0.5, rng.integers(0, strata, n).astype(float)
    index = rng.integers(0, 5, n)
    found = stratified(scores, failed, stratum, index, 5)
    expected = plain(scores, failed, stratum)
    assert (found.auroc is None) == (expected is None)
    if expected is not None:
        assert found.auroc == pytest.approx(expected, abs=1e-12)
    weights = cluster_weights(5, 6, seed=seed)
    for draw, w in zip(found.resampled(weights), weights, strict=True):
        known = plain(scores, failed, stratum, w[index])
        assert np.isnan(draw) if known is None else draw == pytest.approx(known, abs=1e-12)


def test_one_stratum_is_the_plain_auroc():
    rng = np.random.default_rng(1)
    scores, failed = rng.random(60), rng.random(60) < 0.4
    found = stratified(scores, failed, np.zeros(60), np.arange(60) % 7, 7)
    assert found.auroc == pytest.approx(auroc(scores, failed), abs=1e-12)


@pytest.fixture(scope="module")
def found(cell):
    import pyarrow as pa

    cut = split("paper", list(cell.episode), cell.task, cell.success, 0)
    scorers = ("probe", "surface", "task")
    whole = pa.concat_tables([table(cell, score(cell, cut, s)) for s in scorers])
    depth = {t: m["depth"] for t, m in zip(cell.task, cell.meta, strict=True)}
    make = lambda match: intervals(  # noqa: E731
        AucItem("world", "able", "paper", whole, 6, False, match, "probe", 200, 1)
    )
    return make(depth), make(None), score(cell, cut, "probe")


def test_every_scorer_round_and_gain_has_an_interval(found, cell):
    matched, _, probe = found
    assert len(matched) == 6 * 2 * (3 + 2)
    one = matched["failure_auroc", "probe", None, "paper r=2"]
    assert one.point == pytest.approx(probe.facts["rounds"][1]["auroc"], abs=1e-12)
    assert one.low < one.point < one.high
    assert one.n == int((cell.T >= 2).sum())


def test_a_gain_is_the_difference_of_two_points_on_the_same_episodes(found):
    matched, _, _ = found
    for statistic in ("failure_auroc", "failure_auroc_matched"):
        a, b = (matched[statistic, s, None, "paper r=3"] for s in ("probe", "surface"))
        gain = matched[f"{statistic}_gain", "probe - surface", None, "paper r=3"]
        assert gain.point == pytest.approx(a.point - b.point, abs=1e-12)
        assert gain.high - gain.low < (a.high - a.low) + (b.high - b.low)


def test_a_control_below_one_half_counts_as_one_half(found):
    matched, _, _ = found
    task = matched["failure_auroc_matched", "task", None, "paper r=3"]
    probe = matched["failure_auroc_matched", "probe", None, "paper r=3"]
    gain = matched["failure_auroc_matched_gain", "probe - task", None, "paper r=3"]
    assert gain.point == pytest.approx(probe.point - max(task.point, 0.5), abs=1e-12)


def test_depth_explains_what_the_task_alone_knows(found):
    """The made-up goals of one depth are alike: matched, the task tells next to nothing."""
    matched, _, _ = found
    raw = matched["failure_auroc", "task", None, "paper r=1"].point
    within = matched["failure_auroc_matched", "task", None, "paper r=1"].point
    assert within < raw - 0.1


def test_without_depth_nothing_is_matched(found):
    matched, bare, _ = found
    assert {k[0] for k in bare} == {"failure_auroc", "failure_auroc_gain"}
    assert all(bare[k] == matched[k] for k in bare)
