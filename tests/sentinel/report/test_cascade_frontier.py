"""Axes of the frontier: limits that hold every mark, labels that do not collide."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sentinel.report.cascade_frontier import heights, most, reach, ticks

SHARES = st.floats(0.01, 0.99)
MAYBE = st.none() | SHARES


@given(st.lists(SHARES, unique=True).map(sorted))
def test_labels_are_targets_and_stand_apart(asked: list[float]):
    kept = ticks(asked)
    assert set(kept) <= set(asked)
    assert kept == sorted(kept)
    assert kept[-1:] == asked[-1:]
    if len(kept) > 1:
        gaps = [b - a for a, b in pairwise(kept)]
        assert min(gaps) >= 0.12 * (asked[-1] - asked[0])


def test_strict_targets_are_labelled_once():
    assert ticks([0.8, 0.85, 0.9, 0.95, 0.98, 0.99]) == [0.8, 0.85, 0.9, 0.95, 0.99]
    assert ticks([0.9]) == [0.9]
    assert ticks([]) == []


@given(st.lists(st.tuples(SHARES, MAYBE, MAYBE, MAYBE, MAYBE)))
def test_every_mark_lies_within_the_axes(values: list[tuple[float, ...]]):
    names = ("target", "recall_mean", "recall_sd", "savings_mean", "savings_sd")
    rows = [dict(zip(names, line, strict=True)) for line in values]
    low, high = heights(rows)
    assert low < 1 < high
    left, right = reach(sorted(r["target"] for r in rows))
    assert left < right
    for row in rows:
        assert left < row["target"] < right
        if row["recall_mean"] is not None:
            assert low <= row["recall_mean"] - (row["recall_sd"] or 0)
        if row["savings_mean"] is not None:
            assert row["savings_mean"] + (row["savings_sd"] or 0) <= most(rows)
    assert most(rows) > 0
