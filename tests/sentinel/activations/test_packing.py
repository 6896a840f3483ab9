"""Batches hold every pass once, within the budget, with bounded padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.activations.packing import SLACK, pack, padding

lengths = st.lists(st.integers(1, 4000), max_size=60)


@given(lengths, st.integers(1, 20_000))
def test_every_pass_is_in_one_batch_within_budget_and_of_like_length(
    sizes: list[int], tokens: int
) -> None:
    batches = pack(sizes, tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    for batch in batches:
        longest = max(sizes[i] for i in batch)
        assert sizes[batch[0]] == longest
        assert longest * len(batch) <= tokens or len(batch) == 1
        assert min(sizes[i] for i in batch) >= longest * 7 // 8 - SLACK
    assert 0.0 <= padding(sizes, batches) < 1.0


def test_padding_is_small_where_there_is_much_to_choose_from() -> None:
    sizes = [100 + 7 * i for i in range(400)]
    assert padding(sizes, pack(sizes, 16_384)) < 0.04
    assert padding([], []) == 0.0


def test_a_batch_must_hold_something() -> None:
    with pytest.raises(ValueError):
        pack([1], 0)
