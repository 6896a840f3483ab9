from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_episodes import made_episode, made_tasks

from sentinel.errors import UserError
from sentinel.heads.config import ANSWERABILITY, CORRECTNESS, HEADS, SHARED, HeadFailure
from sentinel.heads.snapshots import Snapshots, build, plan


def made(**changes: object) -> Snapshots:
    tasks = {t["task_id"]: t for t in made_tasks()}
    episodes = [made_episode(t, **changes) for t in tasks.values()]
    correct = {e.episode_id: " n " in str(e.action) for e in episodes}
    return build(episodes, tasks, correct)[0]


def test_one_row_per_prefix_with_the_final_outcome() -> None:
    tasks = {t["task_id"]: t for t in made_tasks()}
    episodes = [made_episode(t) for t in tasks.values()]
    snapshots, dropped = build(episodes, tasks, {e.episode_id: True for e in episodes})
    assert len(snapshots) == sum(e.turns + 1 for e in episodes)
    assert not dropped
    for episode in episodes:
        rows = snapshots.episode_id == episode.episode_id
        assert snapshots.t[rows].tolist() == list(range(episode.turns + 1))
        assert len(set(snapshots.target(ANSWERABILITY)[rows])) == 1
        text = snapshots.text[rows]
        assert all(text[i + 1].startswith(text[i]) for i in range(episode.turns))
        assert text[0] == f"QUESTION: {tasks[episode.task_id]['text']}"


def test_targets_and_who_is_eligible() -> None:
    snapshots = made()
    unanswerable = snapshots.target(ANSWERABILITY)
    np.testing.assert_array_equal(unanswerable, 1 - snapshots.answerable)
    correct = snapshots.target(CORRECTNESS)
    eligible = snapshots.answered & (snapshots.answerable == 1)
    np.testing.assert_array_equal(~np.isnan(correct), eligible)
    with pytest.raises(ValueError, match="nonsense"):
        snapshots.target("nonsense")


def test_table_round_trip() -> None:
    snapshots = made()
    again = Snapshots.from_table(snapshots.to_table())
    for name in Snapshots.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(snapshots, name))


def test_episodes_that_a_monitor_ended_are_refused_or_dropped_and_counted() -> None:
    tasks = {t["task_id"]: t for t in made_tasks()}
    episodes = [made_episode(t) for t in tasks.values()]
    ended = [*episodes[3:], made_episode(made_tasks()[0], end="stopped")]
    ended += [made_episode(made_tasks()[1], end="refused")]
    ended += [made_episode(made_tasks()[2], end="engine_error")]
    with pytest.raises(UserError, match="1 stopped, 1 refused"):
        build(ended, tasks, {})
    snapshots, dropped = build(ended, tasks, {}, drop_stopped=True)
    assert dropped == {"stopped": 1, "refused": 1, "engine_error": 1}
    assert len(np.unique(snapshots.episode_id)) == len(episodes) - 3


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("fold", [0, 1, 2, 3, 4, None])
def test_plans_never_mix_groups(head: str, fold: int | None) -> None:
    snapshots = made()
    found = plan(snapshots, head, fold, validation=0.2, seed=1)
    groups = [set(snapshots.group[rows]) for rows in (found.train, found.stop, found.score)]
    assert len(set.union(*groups)) == sum(map(len, groups))
    assert all(groups)
    assert set(snapshots.pool[found.train]) == set(snapshots.pool[found.stop]) == {"train"}
    target = snapshots.target(head)
    fitted = np.concatenate([found.train, found.stop])
    everyone = (snapshots.pool == "train") & ~np.isnan(target)
    if fold is None:
        assert set(snapshots.pool[found.score]) == {"calibration", "heldout"}
        np.testing.assert_array_equal(np.sort(fitted), np.flatnonzero(everyone))
    else:
        np.testing.assert_array_equal(
            np.sort(fitted), np.flatnonzero(everyone & (snapshots.fold != fold))
        )


def test_every_train_row_is_scored_once_eligible_or_not() -> None:
    snapshots = made()
    scored = np.concatenate([plan(snapshots, CORRECTNESS, f).score for f in range(5)])
    np.testing.assert_array_equal(np.sort(scored), np.flatnonzero(snapshots.pool == "train"))
    assert np.isnan(snapshots.target(CORRECTNESS)[scored]).any()


def test_one_class_and_no_rows_stop_the_fold_with_a_cause() -> None:
    with pytest.raises(HeadFailure, match="no eligible"):
        plan(made(end="abstained"), CORRECTNESS, 0)
    tasks = {t["task_id"]: t for t in made_tasks()}
    episodes = [made_episode(t) for t in tasks.values()]
    snapshots, _ = build(episodes, tasks, {e.episode_id: True for e in episodes})
    with pytest.raises(HeadFailure, match="one class"):
        plan(snapshots, CORRECTNESS, None)


def test_without_a_notion_of_answerability_answers_are_still_judged() -> None:
    tasks = {t["task_id"]: t | {"answerable": None} for t in made_tasks()}
    episodes = [made_episode(t, end="answered") for t in made_tasks()]
    correct = {e.episode_id: i % 2 == 0 for i, e in enumerate(episodes)}
    snapshots, _ = build(episodes, tasks, correct)
    assert not np.isnan(snapshots.target(CORRECTNESS)).any()
    with pytest.raises(HeadFailure, match="no eligible"):
        plan(snapshots, ANSWERABILITY, 0)


def test_a_goal_that_met_the_cap_is_a_failure_to_learn_from() -> None:
    # In an environment only successes end before the cap: answers alone would be one class.
    tasks = {t["task_id"]: t | {"answerable": None} for t in made_tasks()}
    ends = ("answered", "cap")
    episodes = [made_episode(t, end=ends[i % 2]) for i, t in enumerate(made_tasks())]
    correct = {e.episode_id: e.end == "answered" for e in episodes}
    snapshots, _ = build(episodes, tasks, correct)
    np.testing.assert_array_equal(snapshots.target(CORRECTNESS), snapshots.answered.astype(float))
    assert len(plan(snapshots, CORRECTNESS, None).train)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 0.6))
def test_training_keeps_both_classes(seed: int, share: float) -> None:
    snapshots = made()
    found = plan(snapshots, ANSWERABILITY, 2, validation=share, seed=seed)
    assert len(np.unique(snapshots.target(ANSWERABILITY)[found.train])) == 2
    again = plan(snapshots, ANSWERABILITY, 2, validation=share, seed=seed)
    np.testing.assert_array_equal(found.stop, again.stop)


def test_the_shared_variant_has_both_targets_and_trains_on_either() -> None:
    snapshots = made()
    targets = snapshots.targets(SHARED)
    for column, head in enumerate(HEADS):
        np.testing.assert_array_equal(targets[:, column], snapshots.target(head))
        np.testing.assert_array_equal(snapshots.targets(head)[:, 0], snapshots.target(head))
    planned = plan(snapshots, SHARED, 0, validation=0.2, seed=3)
    rows = np.concatenate([planned.train, planned.stop])
    expected = np.flatnonzero((snapshots.pool == "train") & (snapshots.fold != 0))
    np.testing.assert_array_equal(np.sort(rows), expected)
    assert np.isnan(targets[planned.train, 1]).any()  # unanswerable: no row of correctness
    assert not set(snapshots.group[planned.train]) & set(snapshots.group[planned.stop])
    for part in (planned.train, planned.stop):
        for column in targets[part].T:
            assert set(column[~np.isnan(column)]) == {0.0, 1.0}
    with pytest.raises(HeadFailure, match="correctness: no eligible"):
        plan(made(end="abstained", answer=None), SHARED, 0)
