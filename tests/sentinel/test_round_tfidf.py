"""A TF–IDF scorer per round: who trains whom, what is left without a score, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_chats import chat_records

from sentinel import tables
from sentinel.cascade.table import from_table
from sentinel.chat_import import ChatEpisode, collect
from sentinel.chat_messages import COST_UNIT, transcript
from sentinel.errors import UserError
from sentinel.probes.parts import FOLDS
from sentinel.round_tfidf import score, table
from sentinel.splits import STRICT_SHARES, split_tasks


def episodes(**made: Any) -> list[ChatEpisode]:
    return list(collect([("", r) for r in chat_records(**made)]).episodes)


def episode(task: str, trial: int, success: bool | None, *said: str) -> ChatEpisode:
    messages = []
    for text in said:
        messages += [{"role": "assistant", "content": text}, {"role": "tool", "content": "ok"}]
    return ChatEpisode(f"{task}/{trial}", task, success, transcript(messages))


@pytest.fixture(scope="module")
def made() -> list[ChatEpisode]:
    return episodes()


@pytest.mark.parametrize("mode", ["strict", "paper"])
def test_scores_tell_failures(made: list[ChatEpisode], mode: str):
    found = score(made, mode)
    rounds = found.facts["rounds"]
    assert [row["round"] for row in rounds] == [1, 2, 3, 4, 5, 6]
    assert rounds[0]["alive"] == len(made) == 120
    assert not found.incomplete
    # `retry` tells failures at 0.8 in each round: later rounds have seen more of it.
    assert rounds[0]["auroc"] > 0.6
    assert rounds[3]["auroc"] > 0.8
    assert (found.score[~np.isnan(found.score)] <= 1).all()


def test_strict_pools_are_those_of_the_splits_and_fit_tasks_get_no_score(made: list[ChatEpisode]):
    found = score(made, "strict", seed=3)
    pools = split_tasks({e.task_id for e in made}, STRICT_SHARES, 3)
    assert found.pool == tuple(str(pools[e.task_id]) for e in found.episodes)
    fit = np.array(found.pool) == "fit"
    assert np.isnan(found.score[fit]).all()
    T = np.array([e.rounds for e in found.episodes])
    for r in range(1, 7):
        assert (np.isnan(found.score[~fit, r - 1]) == (r > T[~fit])).all()
    judged = (np.array(found.pool) == "calibration") & (T >= 2)
    assert found.facts["rounds"][1]["auroc_n"] == judged.sum()


def test_strict_scores_depend_on_no_outcome_outside_the_fit_tasks(made: list[ChatEpisode]):
    found = score(made, "strict")
    fit = {e.task_id for e, p in zip(found.episodes, found.pool, strict=True) if p == "fit"}
    flipped = [
        e if e.task_id in fit else ChatEpisode(e.episode_id, e.task_id, not e.success, e.transcript)
        for e in made
    ]
    again = score(flipped, "strict")
    assert again.pool == found.pool
    np.testing.assert_array_equal(again.score, found.score)


def test_cross_fitting_never_reads_the_own_tasks_outcomes(made: list[ChatEpisode]):
    """With one success and one failure exchanged inside a task, folds stay and so do its scores."""
    task = next(
        t
        for t in sorted({e.task_id for e in made})
        if {e.success for e in made if e.task_id == t} == {True, False}
    )
    of = {e.episode_id: e for e in made}
    own = [e for e in made if e.task_id == task]
    won, lost = (next(e for e in own if e.success is y) for y in (True, False))
    for e in (won, lost):
        of[e.episode_id] = ChatEpisode(e.episode_id, task, not e.success, e.transcript)
    a, b = score(made, "paper"), score(list(of.values()), "paper")
    rows = np.array([e.task_id == task for e in a.episodes])
    np.testing.assert_array_equal(a.score[rows], b.score[rows])
    assert (a.score[~rows] != b.score[~rows]).any()


@pytest.mark.parametrize("mode", ["strict", "paper"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_episodes_changes_nothing(made: list[ChatEpisode], mode: str, seed: int):
    order = np.random.default_rng(seed).permutation(len(made))
    a = table(score(made, mode, seed), "c")
    b = table(score([made[i] for i in order], mode, seed), "c")
    assert a.equals(b)


@pytest.mark.parametrize("mode", ["strict", "paper"])
def test_another_seed_draws_other_splits(made: list[ChatEpisode], mode: str):
    assert not np.array_equal(
        score(made, mode, 0).score, score(made, mode, 1).score, equal_nan=True
    )


def test_only_what_is_said_up_to_the_action_is_read(made: list[ChatEpisode]):
    """Round 1 scores are the same when everything after the first action is cut away."""
    cut = [
        ChatEpisode(
            e.episode_id,
            e.task_id,
            e.success,
            transcript([{"role": "assistant", "content": e.transcript.through(1)}]),
        )
        for e in made
    ]
    whole = [
        ChatEpisode(
            e.episode_id,
            e.task_id,
            e.success,
            transcript(
                [
                    {"role": "assistant", "content": e.transcript.through(1)},
                    {"role": "tool", "content": "success" if e.success else "failure"},
                    {"role": "assistant", "content": "end"},
                ]
            ),
        )
        for e in made
    ]
    a, b = score(cut, "paper", gates=1), score(whole, "paper", gates=2)
    np.testing.assert_array_equal(a.score[:, 0], b.score[:, 0])
    # One round later the feedback has been read, and here it tells everything.
    assert b.facts["rounds"][1]["auroc"] == 1.0
    assert b.facts["rounds"][0]["auroc"] < 1.0


def test_table_is_a_round_scores_table_that_the_cascade_lays_out(made: list[ChatEpisode]):
    scored = score(made, "strict", gates=4)
    found = table(scored, "cell ä")
    assert tables.ROUND_SCORES.check(found).num_rows == sum(e.rounds for e in made)
    assert found.schema.metadata[b"cost_unit"].decode() == COST_UNIT
    rows = found.to_pylist()
    assert all(row["group"] == row["task_id"] for row in rows)
    assert {row["score"] for row in rows if row["round"] > 4} == {None}
    (laid,) = from_table(found, gates=8)
    assert laid.cell == "cell ä"
    assert list(laid.episode) == [e.episode_id for e in scored.episodes]
    np.testing.assert_array_equal(laid.score[:, :4], scored.score)
    for i, e in enumerate(scored.episodes):
        costs = e.transcript.costs()
        assert laid.cost[i] == costs[-1]
        assert list(laid.saved[i, : e.rounds]) == [costs[-1] - c for c in costs][:8]


def test_episodes_without_outcome_train_nothing_but_are_scored():
    rows = episodes(tasks=20)
    blind = [
        ChatEpisode(e.episode_id, e.task_id, None if i % 4 == 0 else e.success, e.transcript)
        for i, e in enumerate(rows)
    ]
    for mode in ("strict", "paper"):
        found = score(blind, mode)
        kept = score([e for e in blind if e.success is not None], mode)
        known = np.array([e.success is not None for e in found.episodes])
        np.testing.assert_array_equal(found.score[known], kept.score)
        assert found.facts["rounds"][0]["alive"] == known.sum()
    assert not np.isnan(found.score[~known, 0]).any()
    assert {r["success"] for r in table(found, "c").to_pylist()} == {True, False, None}


def test_a_task_without_any_outcome_is_in_no_fold():
    rows = [*episodes(tasks=20), episode("none", 0, None, "act")]
    found = score(rows, "paper")
    last = next(i for i, e in enumerate(found.episodes) if e.task_id == "none")
    assert np.isnan(found.score[last]).all()
    assert not found.incomplete


def test_one_class_gives_null_scores_with_the_reason():
    # From round 3 on only failures are alive.
    rows = [
        episode(f"{i:02}", k, k == 0, *(["try", "go"] + ["more"] * (2 * k)))
        for i in range(20)
        for k in range(2)
    ]
    for mode, parts in (("strict", 1), ("paper", FOLDS)):
        found = score(rows, mode)
        late = found.facts["rounds"][2]
        assert found.facts["rounds"][1]["reasons"] == []
        assert len(late["reasons"]) == parts
        assert "training episodes failed" in late["reasons"][0]
        assert (
            late["without_score"]
            == (~np.isnan(found.score[:, 0]))[[e.rounds >= 3 for e in found.episodes]].sum()
        )
        assert np.isnan(found.score[:, 2:]).all()
        assert found.incomplete
        # Rounds that nobody reaches lack nothing.
        assert found.facts["rounds"][5]["reasons"] == []


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_no_text_gives_null_scores_with_the_reason(text: str):
    rows = [
        ChatEpisode(f"{i}/0", str(i), i % 2 == 0, _Silent((text,), (1,), (0,), (0,)))
        for i in range(20)
    ]
    found = score(rows, "paper", gates=1)
    assert np.isnan(found.score).all()
    assert found.facts["rounds"][0]["reasons"] == [f"fold {k}: no text" for k in range(1, 6)]


class _Silent:
    """A transcript without even a role."""

    def __init__(self, texts: Any, ends: Any, prompt: Any, generated: Any) -> None:
        self.texts, self.ends = texts, ends
        self.rounds = len(ends)

    def through(self, r: int) -> str:
        return str(self.texts[r - 1])


def test_a_seed_with_a_one_class_fold_is_passed_over_and_recorded():
    # Nine tasks, each of three episodes: many seeds give a fold without one of the classes.
    wins = [2, 2, 3, 2, 1, 0, 2, 0, 2]
    rows = [episode(str(i), k, k < w, "go", "on") for i, w in enumerate(wins) for k in range(3)]
    seeds = [score(rows, "paper", seed).facts for seed in range(3)]
    assert any(f["refused_seeds"] for f in seeds)
    for seed, facts in enumerate(seeds):
        assert facts["fold_seed"] == seed + len(facts["refused_seeds"])


@pytest.mark.parametrize(
    ("rows", "mode", "says"),
    [
        ([(i, True) for i in range(9)], "paper", "of 9 tasks 9 hold successes, 0 failures"),
        ([(i, i == 0) for i in range(9)], "paper", "of 9 tasks 1 hold successes, 8 failures"),
        ([(0, True), (1, False)], "paper", "of 2 tasks"),
        ([(i, None) for i in range(9)], "paper", "of 0 tasks"),
        ([(0, True), (1, False)], "strict", "2 tasks leave the pools"),
    ],
)
def test_too_few_are_refused(rows: list[tuple[int, bool | None]], mode: str, says: str):
    with pytest.raises(UserError, match=says):
        score([episode(str(t), 0, y, "go") for t, y in rows], mode)


def test_settings_that_make_no_sense(made: list[ChatEpisode]):
    for settings_ in ({"mode": "loose"}, {"gates": 0}, {"seed": -1}):
        with pytest.raises(UserError):
            score(made, **settings_)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 11),
            st.sampled_from([True, False, None]),
            st.lists(st.sampled_from(["retry", "go on", "\ud800", "", "1 2 3"]), min_size=1,
                     max_size=4),
        ),
        min_size=12,
        max_size=40,
    ),
    st.sampled_from(["strict", "paper"]),
)  # fmt: skip
def test_any_episodes_give_a_sound_table_or_one_line(rows: list[Any], mode: str):
    made = [episode(f"{t:02}", i, y, *said) for i, (t, y, said) in enumerate(rows)]
    try:
        found = score(made, mode)
    except UserError:
        return
    (laid,) = from_table(table(found, "c"))
    assert len(laid) == len(made)
    for row in found.facts["rounds"]:
        assert bool(row["reasons"]) == bool(row["without_score"])
