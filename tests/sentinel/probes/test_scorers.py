"""Every scorer: what it is trained on, what it may see, and what is left without a score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sentinel import tables
from sentinel.bootstrap import auroc
from sentinel.cascade.table import from_table
from sentinel.errors import UserError
from sentinel.probes import SCORERS, Cell, ScorerConfig, score, split, table

CHEAP = ("probe", "surface", "stacking", "task", "random")


def cut(cell: Cell, mode: str, seed: int = 0, success: object = None):
    outcomes = cell.success if success is None else success
    return split(mode, list(cell.episode), cell.task, outcomes, seed)


def run(cell: Cell, scorer: str, mode: str = "paper", **settings: object):
    config = ScorerConfig(heads={"kind": "tfidf"}, **settings)
    return score(cell, cut(cell, mode), scorer, config)


@pytest.fixture(scope="module")
def scored(cell):
    """Every scorer in both modes, once."""
    return {(s, mode): run(cell, s, mode) for s in SCORERS for mode in ("paper", "strict")}


@pytest.mark.parametrize("mode", ["paper", "strict"])
@pytest.mark.parametrize("scorer", SCORERS)
def test_who_gets_a_score(cell, scored, scorer, mode):
    found = scored[scorer, mode]
    assert not any(row["reasons"] for row in found.facts["rounds"])
    fit = np.array([p == "fit" for p in found.split.pool])
    for r in range(1, 7):
        scored = ~np.isnan(found.score[:, r - 1])
        np.testing.assert_array_equal(scored, (r <= cell.T) & ~fit)
    inside = found.score[~np.isnan(found.score)]
    assert ((inside >= 0) & (inside <= 1)).all()


def test_the_signal_is_found_where_it_is(scored):
    best = {s: scored[s, "paper"].facts["rounds"][2]["auroc"] for s in SCORERS}
    assert best["probe"] > 0.93
    assert best["stacking"] > 0.93
    assert 0.25 < best["random"] < 0.75
    assert best["task"] < best["probe"] - 0.05  # depth tells something, not all


@pytest.mark.parametrize("scorer", SCORERS)
def test_strict_scores_depend_on_no_outcome_outside_the_fit_tasks(cell, scored, scorer):
    known = cut(cell, "strict")
    fit = np.array([p == "fit" for p in known.pool])
    flipped = tuple(y if inside else not y for y, inside in zip(cell.success, fit, strict=True))
    config = ScorerConfig(heads={"kind": "tfidf"})
    a = scored[scorer, "strict"]
    b = score(replace(cell, success=flipped), cut(cell, "strict", success=flipped), scorer, config)
    assert b.split.pool == a.split.pool
    np.testing.assert_array_equal(a.score, b.score)


@pytest.mark.parametrize("scorer", CHEAP)
def test_no_episode_is_scored_by_a_model_that_saw_its_task(cell, scored, scorer):
    """Other outcomes in one fold change no score of that fold's own episodes."""
    known = cut(cell, "paper")
    own = known.parts[1].apply
    flipped = tuple(not y if inside else y for y, inside in zip(cell.success, own, strict=True))
    a = scored[scorer, "paper"]
    b = score(replace(cell, success=flipped), known, scorer)
    np.testing.assert_array_equal(a.score[own], b.score[own])
    assert (np.nan_to_num(a.score[~own]) != np.nan_to_num(b.score[~own])).any()


def test_only_episodes_alive_at_a_round_train_its_model(cell):
    """Episodes of three rounds are not there at round 4: their outcomes do not matter."""
    known = cut(cell, "paper")
    short = cell.T == 3
    flipped = tuple(not y if s else y for y, s in zip(cell.success, short, strict=True))
    a, b = (score(c, known, "probe") for c in (cell, replace(cell, success=flipped)))
    np.testing.assert_array_equal(a.score[:, 3:], b.score[:, 3:])
    assert (np.nan_to_num(a.score[:, :3]) != np.nan_to_num(b.score[:, :3])).any()


def test_after_feedback_the_last_round_is_not_read(cell):
    found = run(cell, "probe", after_feedback=True)
    for r in range(1, 7):
        np.testing.assert_array_equal(~np.isnan(found.score[:, r - 1]), r < cell.T)
    rows = from_table(table(cell, found), after_feedback=True)
    assert rows[0].alive.sum() == (cell.T[:, None] > np.arange(1, 7)).sum()


def test_a_missing_hidden_state_is_no_score_and_a_missing_logprob_is_the_mean(cell):
    vectors = cell.vectors.copy()
    vectors[5, 0] = np.nan
    surface = cell.surface.copy()
    surface[7, 0, 0] = np.nan
    torn = replace(cell, vectors=vectors, surface=surface)
    probe, plain = run(torn, "probe"), run(torn, "surface")
    assert np.isnan(probe.score[5, 0])
    assert probe.facts["rounds"][0]["without_score"] == 1
    assert not np.isnan(plain.score[7, 0])


def test_an_agent_without_log_probabilities_still_has_surface_features(cell):
    surface = cell.surface.copy()
    surface[:, :, :2] = np.nan
    found = run(replace(cell, surface=surface), "surface")
    assert found.facts["rounds"][3]["auroc"] > 0.6
    coefficients = np.stack([m.coef[:2] for m in found.models.values()])
    np.testing.assert_array_equal(coefficients, 0.0)


def test_episodes_without_an_outcome_train_nothing_and_are_scored(cell):
    unknown = tuple(None if i % 7 == 0 else y for i, y in enumerate(cell.success))
    odd = replace(cell, success=unknown)
    found = score(odd, cut(odd, "strict"), "probe")
    assert found.facts["unlabelled"] == sum(y is None for y in unknown)
    lost = np.array([y is None for y in unknown])
    outside = np.array([p != "fit" for p in found.split.pool])
    assert not np.isnan(found.score[lost & outside, 0]).any()


def test_one_class_in_a_round_is_named_and_passes_every_gate(cell):
    """All that still run at round 6 have failed: no model, and the cascade lives with it."""
    won = tuple(bool(y and t < 6) for y, t in zip(cell.success, cell.T, strict=True))
    found = score(replace(cell, success=won), cut(cell, "paper", success=won), "probe")
    last = found.facts["rounds"][5]
    assert len(last["reasons"]) == 5
    assert "training episodes failed" in last["reasons"][0]
    assert np.isnan(found.score[:, 5]).all()
    assert last["auroc"] is None


def test_no_folds_with_both_classes_is_refused_with_counts(cell):
    won = tuple(i == 3 for i in range(len(cell)))
    with pytest.raises(UserError, match="1 hold successes"):
        cut(cell, "paper", success=won)


def test_unknown_scorers_and_missing_activations_are_refused(cell):
    with pytest.raises(UserError, match="valid: probe"):
        run(cell, "oracle")
    with pytest.raises(UserError, match="needs hidden states"):
        run(replace(cell, vectors=None), "stacking")
    assert run(replace(cell, vectors=None), "random").models[0, 1].width == 64


def test_the_table_is_what_the_cascade_reads(cell, scored):
    found = scored["probe", "strict"]
    made = table(cell, found)
    assert tables.ROUND_SCORES.check(made).num_rows == int(np.minimum(cell.T, 6).sum())
    (rounds,) = from_table(made)
    assert (rounds.cell, rounds.scorer, len(rounds)) == ("world/able", "probe", len(cell))
    np.testing.assert_array_equal(rounds.score, found.score)
    np.testing.assert_array_equal(rounds.cost, cell.cost_total)
    first = rounds.saved[:, 0]
    np.testing.assert_array_equal(first, cell.cost_total - cell.cost[:, 0])
    seen = ~np.isnan(rounds.score[:, 2]) & (rounds.pool == "calibration")
    assert auroc(rounds.score[seen, 2], ~rounds.success[seen]) == found.facts["rounds"][2]["auroc"]


def test_the_same_seed_gives_the_same_scores_and_another_other_folds(cell, scored):
    a, b = scored["random", "paper"], run(cell, "random")
    np.testing.assert_array_equal(a.score, b.score)
    other = score(cell, cut(cell, "paper", 1), "random", ScorerConfig(seed=1))
    assert (np.nan_to_num(other.score) != np.nan_to_num(a.score)).any()
