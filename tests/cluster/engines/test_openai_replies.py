"""Replies of status 200: whole log-probabilities or none, contents of every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from api_engine import ask
from api_server import said, token

FIVE = (-0.1, -3.0, -4.0, -5.0, -6.0)


@pytest.mark.parametrize(
    ("tokens", "chosen", "top"),
    [
        (None, False, False),
        ([token(-0.1, *FIVE), token(-0.1)], True, False),
        ([token(-0.1, *FIVE), token(-0.1, *FIVE[:4])], True, False),
        ([{**token(-0.1, *FIVE), "logprob": None}, token(-0.1, *FIVE)], False, True),
        ([token(-9999.0, *FIVE)], False, True),
        ([token(-0.1, *reversed(FIVE))], True, True),
        ([], True, True),
        ("nonsense", False, False),
    ],
)
def test_log_probabilities_are_whole_or_null(tokens: Any, chosen: bool, top: bool) -> None:
    generation, _ = ask([said(logprobs={"content": tokens})])
    assert (generation.logprobs is not None, generation.top_logprobs is not None) == (chosen, top)
    if top:
        assert generation.top_logprobs.shape == (len(tokens), 5)
        assert (np.diff(generation.top_logprobs, axis=1) <= 0).all()


def test_what_a_model_cut_short_or_left_empty_is_an_answer() -> None:
    assert ask([said("SQL: sel", reason="length")])[0].finish_reason == "length"
    thought = ask([said(None, reason="length")])[0]
    assert (thought.text, thought.finish_reason, thought.generated_tokens) == ("", "length", 10)
    assert ask([said("")])[0].text == ""
    parts = [{"type": "text", "text": "FINAL"}, {"type": "text", "text": ": null"}]
    assert ask([said(parts)])[0].text == "FINAL: null"
