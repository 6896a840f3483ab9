"""The five surface features, by hand, and what they must not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sentinel.episodes import Turn
from sentinel.probes.surface import SURFACE, surface_features


def turn(r: int, logs: list[float] | None, shown: str = "ok", n: int = 2, prompt: int = 10) -> Turn:
    return Turn(
        "b", "a", "e", r, observation=shown, generated_tokens=n, prompt_tokens=prompt, logprobs=logs
    )


STEPS = [
    turn(1, [-1.0, -3.0], "Error: no such thing", 2, 10),
    turn(2, [-0.5], "that is INVALIDATED", 1, 20),
    turn(3, [-4.0, 0.0], "ok", 2, 40),
]


def test_the_features_by_hand():
    found = surface_features(STEPS, 4)
    assert SURFACE[1] == "earlier_logprob_mean"
    np.testing.assert_array_equal(
        found,
        [
            [-2.0, np.nan, 2, 10, 0],
            [-0.5, -2.0, 1, 20, 1],
            [-2.0, -1.25, 2, 40, 2],
            [np.nan] * 5,
        ],
    )


def test_the_feedback_of_the_round_itself_and_later_turns_are_not_read():
    other = [*STEPS[:2], replace(STEPS[2], observation="error: failed")]
    np.testing.assert_array_equal(surface_features(other, 3), surface_features(STEPS, 3))
    np.testing.assert_array_equal(surface_features(STEPS[:2], 2), surface_features(STEPS, 2))


def test_without_log_probabilities_they_are_unknown_and_the_rest_is_there():
    found = surface_features([replace(s, logprobs=None) for s in STEPS], 3)
    assert np.isnan(found[:, :2]).all()
    np.testing.assert_array_equal(found[:, 2:], surface_features(STEPS, 3)[:, 2:])


def test_a_turn_without_one_is_left_out_of_the_mean_over_earlier_rounds():
    found = surface_features([STEPS[0], replace(STEPS[1], logprobs=None), STEPS[2]], 3)
    assert np.isnan(found[1, 0])
    assert found[2, 1] == -2.0


def test_the_words_can_be_chosen():
    assert surface_features(STEPS, 3, ["invalidated"])[2, 4] == 1
    assert surface_features(STEPS, 3, [])[2, 4] == 0
