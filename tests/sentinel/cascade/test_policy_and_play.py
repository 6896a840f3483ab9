"""A frozen cascade decides as it was searched, live and after a round trip."""

from __future__ import annotations

import json

import numpy as np
import pytest
import random_rounds
import reference_cascade as reference
from hypothesis import given
from hypothesis import strategies as st

from sentinel.cascade import CascadePolicy, outcome, play
from sentinel.errors import UserError


def policy(*taus: float | None) -> CascadePolicy:
    return CascadePolicy("c", "s", "strict", "margin", "0.95", "0.02", taus, ("0.9",) * len(taus))


def test_abort_iff_the_score_exceeds_is_true():
    p = policy(0.5, None)
    assert p.aborts(1, np.nextafter(0.5, 1))
    assert not p.aborts(1, 0.5)
    assert not p.aborts(1, float("nan"))
    assert not p.aborts(1, None)
    assert not p.aborts(2, float("inf"))
    assert not p.aborts(3, 9.0)
    assert not p.aborts_nothing
    assert policy(None, None).aborts_nothing


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1))
def test_round_trip(taus: list[float | None]):
    p = policy(*taus)
    text = p.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    again = CascadePolicy.from_json(text)
    assert again == p
    assert again.hash() == p.hash()


def test_damaged_policies_are_refused():
    data = policy(0.5).to_dict()
    for change in ({"version": 0}, {"thresholds": ["never"]}, {"thresholds": [None]}, {"junk": 1}):
        with pytest.raises(UserError):
            CascadePolicy.from_dict({**data, **change})


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("after", [False, True])
def test_play_equals_live_decisions(seed: int, after: bool):
    rng = np.random.default_rng(seed)
    G = int(rng.integers(1, 5))
    found = random_rounds.episodes(rng, 20, G)
    taus = [None if rng.random() < 0.3 else float(np.round(rng.normal(), 1)) for _ in range(G)]
    rounds = random_rounds.as_rounds(found, G, after)
    played = play(taus, rounds)
    p = policy(*taus)
    infinite = [float("inf") if t is None else t for t in taus]
    for i, e in enumerate(found):
        expected = reference.play(e, infinite, after)
        assert (int(played.gate[i]), int(played.saved[i])) == expected
        last = e["T"] - 1 if after else e["T"]
        live = [r for r in range(1, min(last, G) + 1) if p.aborts(r, e["scores"][r - 1])]
        assert (live[0] if live else 0) == expected[0]
    figures = outcome(played, rounds)
    assert (figures["kept"], figures["saved"]) == reference.count(found, infinite, after)
    assert sum(g["lost"] for g in figures["gates"]) == figures["successes"] - figures["kept"]
    assert sum(g["saved"] for g in figures["gates"]) == figures["saved"]


def test_undefined_shares_are_none():
    empty = random_rounds.as_rounds([], 2)
    figures = outcome(play([None, None], empty), empty)
    assert figures["recall"] is None
    assert figures["savings"] is None


def test_another_number_of_gates_is_refused():
    with pytest.raises(UserError, match="1 gates on a table of 2"):
        play([None], random_rounds.as_rounds([], 2))
