"""One digit or no verdict; the reply alone is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.judge.verdict import read_verdict, unreadable


@pytest.mark.parametrize("reply", ["1", " 1\n", "1.", '"1"', "**1**", "`1`", "'1'."])
def test_a_digit_with_its_wrapping(reply: str) -> None:
    assert read_verdict(reply) is True
    assert read_verdict(reply.replace("1", "0")) is False


@pytest.mark.parametrize(
    "reply",
    ["", " ", "2", "-1", "10", "01", "1 0", "1\n0", "1 or 0", "yes", "1: the same", "Verdict: 1",
     "One digit, 1 or 0: 1", "１", "¹", "1,", "1.0", "<think>1</think>", "null"],
)  # fmt: skip
def test_whatever_else_is_no_verdict(reply: str) -> None:
    assert read_verdict(reply) is None


@given(st.text(max_size=30))
def test_no_reply_with_other_letters_or_digits_is_a_verdict(reply: str) -> None:
    verdict = read_verdict(reply)
    if verdict is not None:
        assert [c for c in reply if c.isalnum()] == ["1" if verdict else "0"]


def test_why_a_reply_is_no_verdict_is_one_line() -> None:
    assert unreadable("per\nhaps" * 50, False).count("\n") == 0
    assert unreadable("", True) == "the reply is empty; cut at the token limit (judge.max_tokens)"
