"""Where a round is read, and that the sequence up to there is what the engine had run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.activations.positions import passes, tokens_run
from sentinel.episodes import Turn
from sentinel.errors import UserError


def turn(
    number: int,
    prompt: list[int] | None,
    generated: list[int] | None,
    full: bool | None = None,
    finish: str = "stop",
) -> Turn:
    return Turn(
        "b",
        "a",
        "b/a/q/0",
        number,
        prompt_ids=prompt,
        prompt_is_full=number == 1 if full is None else full,
        generated_ids=generated,
        finish_reason=finish,
    )


def test_one_pass_holds_every_turn_that_extends_the_last() -> None:
    turns = [turn(1, [1, 2, 3], [10, 11]), turn(2, [9, 4], [12]), turn(3, [9, 5], [13, 14])]
    (one,) = passes("b/a/q/0", turns)
    assert one.ids.tolist() == [1, 2, 3, 10, 11, 9, 4, 12, 9, 5, 13, 14]
    assert one.ids.dtype == np.int32
    assert (one.rounds, one.positions) == ((1, 2, 3), (4, 7, 11))
    (early,) = passes("b/a/q/0", turns, rounds=2)
    assert early.ids.tolist() == [1, 2, 3, 10, 11, 9, 4, 12]
    assert early.rounds == (1, 2)


def test_a_broken_prefix_begins_a_pass_of_its_own() -> None:
    turns = [
        turn(1, [1, 2], [10]),
        turn(2, [1, 2, 7], [11, 12], full=True),
        turn(3, [9], [13]),
        turn(4, [1, 2, 7, 8], [14], full=True),
    ]
    found = passes("b/a/q/0", turns)
    assert [(p.rounds, p.positions, p.ids.tolist()) for p in found] == [
        ((1,), (2,), [1, 2, 10]),
        ((2, 3), (4, 6), [1, 2, 7, 11, 12, 9, 13]),
        ((4,), (4,), [1, 2, 7, 8, 14]),
    ]


def test_a_token_that_was_sampled_at_the_limit_was_never_run() -> None:
    cut = turn(1, [1, 2], [10, 11, 12], finish="length")
    (one,) = passes("b/a/q/0", [cut])
    assert one.ids.tolist() == [1, 2, 10, 11]
    assert one.positions == (3,)
    # In the next turn it is part of what is run.
    (two,) = passes("b/a/q/0", [cut, turn(2, [9], [13])])
    assert two.ids.tolist() == [1, 2, 10, 11, 12, 9, 13]
    assert two.positions == (3, 6)


def test_a_turn_that_ran_nothing_has_no_row() -> None:
    empty, cut = turn(1, [1, 2], []), turn(1, [1, 2], [10], finish="length")
    assert passes("b/a/q/0", [empty]) == passes("b/a/q/0", [cut]) == []
    (one,) = passes("b/a/q/0", [empty, turn(2, [9], [11])])
    assert (one.ids.tolist(), one.rounds, one.positions) == ([1, 2, 9, 11], (2,), (3,))
    assert passes("b/a/q/0", []) == []


def test_turns_without_ids_are_named() -> None:
    for bare in (turn(1, None, None), turn(1, [1], None)):
        with pytest.raises(UserError, match="b/a/q/0 has no token ids in turn 1"):
            passes("b/a/q/0", [bare])
    with pytest.raises(ValueError, match="continuation"):
        passes("b/a/q/0", [turn(2, [1], [2])])


some_turns = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), min_size=1, max_size=5),
        st.lists(st.integers(10, 19), max_size=4),
        st.booleans(),
        st.sampled_from(["stop", "length"]),
    ),
    max_size=7,
)


@given(some_turns, st.integers(1, 8))
def test_every_row_sees_exactly_what_its_turn_had_seen(made: list[Any], rounds: int) -> None:
    """For any episode: prompt and run tokens of a turn, whole, and nothing else, end at its row."""
    turns, history, seen = [], [], {}
    for number, (prompt, generated, full, finish) in enumerate(made, start=1):
        full = full or number == 1
        history = [*([] if full else history), *prompt]
        one = turn(number, prompt, generated, full=full, finish=finish)
        turns.append(one)
        if tokens_run(one) and number <= rounds:
            seen[number] = history + generated[: tokens_run(one)]
        history = history + generated
    found = passes("b/a/q/0", turns, rounds)
    rows = [
        (r, p.ids[: at + 1].tolist())
        for p in found
        for r, at in zip(p.rounds, p.positions, strict=True)
    ]
    assert rows == list(seen.items())
    assert all(len(p) == p.positions[-1] + 1 for p in found)
    if not any(full for _, _, full, _ in made[1:]):
        assert len(found) <= 1
