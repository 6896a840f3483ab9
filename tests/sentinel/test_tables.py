"""Declared schemas: nothing unknown, nothing missing, and one meaning of "equal"."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel import tables
from sentinel.tables import ALL, LABELS, TURNS, TableError, diff


def label(**changes: Any) -> dict[str, Any]:
    row = {
        "benchmark": "clinic",
        "agent": "a",
        "episode_id": "clinic/a/1/0",
        "label": "typed",
        "correct": True,
        "source": "match",
        "version": "1",
        "error": None,
    }
    return row | changes


def turn(**changes: Any) -> dict[str, Any]:
    tops = [-0.1, -2.0, -2.0001, -5.0, -6.0]
    row = {
        "benchmark": "clinic",
        "agent": "a",
        "episode_id": "clinic/a/1/0",
        "turn": 1,
        "prompt_ids": [1, 2],
        "prompt_is_full": True,
        "generated_ids": [7, 8],
        "finish_reason": "stop",
        "text": "x",
        "kind": "act",
        "thought": "",
        "action": "x",
        "best_so_far": None,
        "forgiven": [],
        "observation": "",
        "rendered": "",
        "status": "ok",
        "n_rows": 1,
        "n_cols": 1,
        "prompt_tokens": 2,
        "generated_tokens": 2,
        "logprobs": [-0.1, -0.1],
        "top_ids": [7, 1, 2, 3, 4, 8, 1, 2, 3, 4],
        "top_logprobs": tops * 2,
        "engine_seconds": 0.1,
        "env_seconds": 0.1,
    }
    return row | changes


def turns(**changes: Any) -> pa.Table:
    return TURNS.from_rows([turn(**changes)])


@pytest.mark.parametrize("name", ALL)
def test_every_schema_survives_an_empty_table_and_documents_its_columns(name: str) -> None:
    table = ALL[name]
    assert table.check(table.empty()).schema.metadata[b"version"] == tables.VERSION.encode()
    assert set(table.key) <= table.columns.keys()
    assert all(column.doc for column in table.columns.values())
    assert diff(name, table.empty(), table.empty()) == []


def test_unknown_missing_and_wrong_columns_are_named_at_once() -> None:
    row = label(extra=1)
    del row["source"], row["version"]
    with pytest.raises(TableError, match=r"missing columns: source, version; unknown columns: ext"):
        LABELS.from_rows([row])
    good = LABELS.from_rows([label()])
    wrong = good.set_column(0, "benchmark", pa.array([1])).set_column(
        3, "label", pa.array([None], pa.string())
    )
    with pytest.raises(TableError, match=r"benchmark is int64, not string; label has 1 nulls"):
        LABELS.check(wrong)
    with pytest.raises(TableError, match="repeated columns: label"):
        LABELS.check(good.append_column("label", good.column("label")))


def test_a_value_of_another_type_is_refused_and_all_null_columns_keep_their_type() -> None:
    with pytest.raises(TableError, match="labels"):
        LABELS.from_rows([label(correct="yes")])
    assert LABELS.from_rows([label(correct=None)]).schema.field("correct").type == pa.bool_()


def test_order_of_rows_and_columns_is_no_difference() -> None:
    rows = [label(episode_id=f"e{i}") for i in range(3)]
    left, right = LABELS.from_rows(rows), LABELS.from_rows(rows[::-1])
    assert diff("labels", left, right.select(right.column_names[::-1])) == []


def test_lost_rows_and_changed_values_are_listed() -> None:
    left = LABELS.from_rows([label(episode_id="e0"), label(episode_id="e1")])
    assert diff("labels", left, left.slice(0, 1)) == [
        "labels: only left: ('clinic', 'a', 'e1', 'typed')"
    ]
    changed = LABELS.from_rows([label(episode_id="e0"), label(episode_id="e1", correct=None)])
    assert diff("labels", left, changed) == ["labels.correct at clinic/a/e1/typed: True != None"]


def test_volatile_columns_never_differ_and_numbers_have_a_tolerance() -> None:
    assert diff("turns", turns(), turns(engine_seconds=9.0, env_seconds=None)) == []
    assert diff("turns", turns(), turns(logprobs=[-0.10005, -0.1])) == []
    assert len(diff("turns", turns(), turns(logprobs=[-0.1002, -0.1]))) == 1
    assert len(diff("turns", turns(), turns(logprobs=None))) == 1


def test_ranks_may_swap_only_where_they_nearly_tie() -> None:
    swapped = [7, 2, 1, 3, 4, 8, 1, 2, 3, 4]
    assert diff("turns", turns(), turns(top_ids=swapped)) == []
    assert diff("turns", turns(), turns(top_ids=[7, 1, 2, 3, 99, 8, 1, 2, 3, 4])) == []
    assert len(diff("turns", turns(), turns(top_ids=[1, 7, 2, 3, 4, 8, 1, 2, 3, 4]))) == 1
    assert len(diff("turns", turns(), turns(top_ids=[7, 1, 2, 33, 4, 8, 1, 2, 3, 4]))) == 1


def first_five(logs: np.ndarray) -> dict[str, list[Any]]:
    order = np.lexsort((np.arange(len(logs)), -logs))[:5]
    return {"top_ids": order.tolist(), "top_logprobs": logs[order].tolist()}


@given(
    st.lists(st.integers(-60_000, 0), min_size=6, max_size=9),
    st.lists(st.integers(-9, 9), min_size=9, max_size=9),
)
def test_rounding_makes_no_difference_however_many_tokens_nearly_tie(
    steps: list[int], noise: list[int]
) -> None:
    """The k-th largest of some numbers moves no more than they do, whoever it is."""
    logs = np.float64(steps) * 1e-4  # many ties
    moved = logs + np.float64(noise[: len(logs)]) * 1e-5
    left, right = (
        turns(generated_ids=[7], logprobs=[-0.1], **first_five(x)) for x in (logs, moved)
    )
    assert diff("turns", left, right) == []


def test_a_fifth_token_that_ties_with_an_unrecorded_one_has_the_same_logprob() -> None:
    tops = [-0.1, -2.0, -2.0001, -5.0, -6.0]
    other = {"top_ids": [7, 1, 2, 3, 99, 8, 1, 2, 3, 4]}
    near = turns(**other, top_logprobs=[*tops[:4], -6.00003, *tops])
    assert diff("turns", turns(), near) == []
    far = turns(**other, top_logprobs=[*tops[:4], -6.0002, *tops])
    assert len(diff("turns", turns(), far)) == 1, "a tie would have the same log-probability"
    # Not a matter of ranks: the second likeliest, the same token, moved by more than rounding does.
    drifted = turns(top_logprobs=[tops[0], -2.00017, *tops[2:], *tops])
    assert len(diff("turns", turns(), drifted)) == 1


def test_other_tokens_are_tolerated_at_a_tie_only_and_listed() -> None:
    other = turn(generated_ids=[7, 9], text="y")
    assert len(diff("turns", turns(), TURNS.from_rows([other]))) == 2
    tie = [-0.7, -0.7001, -3.0, -5.0, -6.0]
    left = turns(top_logprobs=[-0.1, -2.0, -3.0, -5.0, -6.0, *tie])
    lines = diff("turns", left, TURNS.from_rows([other]))
    assert lines == ["turns: tie at clinic/a/clinic/a/1/0/1: token 1"]
