"""A result survives JSON exactly."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.sql.result import Result

VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary(),
    st.text(st.characters()),
    st.sampled_from(["\ud800", "\ud815\udc98", "a\x00b", "", "NULL", "None"]),
)  # fmt: skip


@given(
    st.lists(st.text(max_size=5), max_size=4),
    st.lists(st.lists(VALUES, max_size=4), max_size=4),
    st.one_of(st.none(), st.text()),
    st.booleans(),
)
def test_round_trip(
    columns: list[str], rows: list[list[object]], error: str | None, truncated: bool
) -> None:
    result = Result(tuple(columns), tuple(map(tuple, rows)), error, truncated, seconds=1.5)  # type: ignore[arg-type]
    text = result.to_json()
    again = Result.from_json(text)
    assert again == result
    assert repr(again.rows) == repr(result.rows)  # types, signs of zero
    assert again.to_json() == text
    assert text.isascii()
    json.loads(text, parse_constant=pytest.fail)
    assert pickle.loads(pickle.dumps(result)) == result


def test_time_is_no_part_of_a_result() -> None:
    assert Result(("a",), ((1,),), seconds=1.0) == Result(("a",), ((1,),), seconds=2.0)
    assert "seconds" not in Result(seconds=3.0).to_json()


def test_wide_integers_are_text_in_json() -> None:
    rows = ((2**53,), (2**53 + 1,), (-(2**63),))
    data = json.loads(Result(("n",), rows).to_json())
    assert data["rows"] == [[2**53], [{"int": str(2**53 + 1)}], [{"int": str(-(2**63))}]]


@pytest.mark.parametrize(
    "text", ["{}", "[]", "1", "null", '{"columns": [], "rows": [[{"x": "1"}]]}', "not json"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Result.from_json(text)
