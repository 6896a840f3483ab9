"""A running episode under a frozen monitor ends where its finished self would have been cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_rounds
import numpy as np
import pyarrow as pa
import pytest
import small_prefix_scores
from made_episodes import made_episode, made_tasks
from threadpoolctl import threadpool_limits

from sentinel.agent.react import SQL_DIALECT
from sentinel.calibrate import logit, sigmoid
from sentinel.cascade import CascadeConfig, cascade
from sentinel.decide import DecideConfig, fit
from sentinel.episodes import Episode, Turn
from sentinel.features import trajectory_features
from sentinel.monitor import Monitor, load, save
from sentinel.monitor.running import ROUND_GATE, Running, RunningCascade, RunningSentinel
from sentinel.probes import ScorerConfig, cell_of, monitor, score, split, table
from sentinel.probes import export as probes
from sentinel.probes.monitor import CascadeMonitor
from sentinel.tables import FEATURES
from sentinel.user_tables import dumps

TARGET, N = "0.8", 60


def moments(episode: Episode) -> Iterator[tuple[str, Episode]]:
    """What the agent loop shows of an episode while it runs, in order."""
    running = replace(episode, end="cap", success=None, action=None, answer=None)
    for r, step in enumerate(episode.steps, start=1):
        before = list(episode.steps[: r - 1])
        yield "turn", replace(running, turns=r - 1, steps=before)
        nothing: dict[str, Any] = {"observation": "", "rendered": "", "status": "none"}
        unseen: Turn = replace(step, **nothing, n_rows=None, n_cols=None)
        yield "action", replace(running, turns=r, steps=[*before, unseen])


def play(running: Running, episode: Episode) -> tuple[str | None, int]:
    """(what was asked when it ended, turns run by then); the agent's own end: None, T."""
    for asked, now in moments(episode):
        if (running.turn if asked == "turn" else running.action)(now):
            closed = replace(now, end="stopped" if now.turns else "refused")
            assert running.close(closed).exit_time == now.turns
            return asked, now.turns
    return None, episode.turns


@pytest.fixture(scope="module", params=["surface", "tfidf", "probe", "heads"])
def cell(request: Any, tmp_path_factory: Any) -> tuple[Any, ...]:
    """Episodes, their scores, and the folder of a monitor fitted on them."""
    root, tasks = tmp_path_factory.mktemp("cascade"), made_rounds.tasks(N)
    made = {t["task_id"]: made_rounds.episode(t, "able", 0, wins=0.4) for t in tasks}
    found = cell_of(
        [e for e, _ in made.values()],
        {t["task_id"]: t for t in tasks},
        {e.episode_id: e.success for e, _ in made.values()},
        benchmark="world",
        agent="able",
        dialect=made_rounds.MadeWorld.dialect,
    )
    vectors = {(e.episode_id, r): v for e, many in made.values() for r, v in enumerate(many, 1)}
    found = found.with_vectors(vectors, made_rounds.LAYER)
    cut = split("strict", list(found.episode), found.task, found.success, 0)
    how = ScorerConfig(heads={"kind": "tfidf"}, folder=root / "probes" / request.param)
    scored = score(found, cut, request.param, how)
    probes.save(root / "probes", found, scored, {"error_words": ["error"]})
    options = CascadeConfig.of([TARGET], "strict", gates=found.gates)
    document = json.loads(dumps(cascade(table(found, scored), options)))
    folder = root / "cascade"
    monitor.save(folder, root / "probes", request.param, document, "world", "able")
    text = {t["task_id"]: t["text"] for t in tasks}
    episodes = {e.episode_id: (e, text[e.task_id]) for e, _ in made.values()}
    return load(folder), found, scored, episodes, vectors


@pytest.mark.parametrize("after_feedback", [False, True])
def test_round_gates_fire_on_running_episodes_where_the_table_says(
    cell: tuple[Any, ...], after_feedback: bool
) -> None:
    frozen, found, scored, episodes, vectors = cell
    assert isinstance(frozen, CascadeMonitor)
    # the median of each round as its gate: something fires, and ties are met
    known = [np.sort(column[~np.isnan(column)]) for column in scored.score.T]
    gates = tuple(float(c[len(c) // 2]) if i != 1 else None for i, c in enumerate(known))
    policy = replace(frozen.policy(TARGET), thresholds=gates, after_feedback=after_feedback)
    frozen = replace(frozen, policies={TARGET: policy})

    def hidden(episode: Episode, r: int) -> Any:
        return vectors[episode.episode_id, r].astype(np.float16)

    ended = []
    for i, name in enumerate(found.episode):
        if np.isnan(scored.score[i, 0]):  # a fit task: its table has no score
            continue
        episode, question = episodes[name]
        last = int(found.T[i]) - after_feedback
        fired = (
            r
            for r in range(1, min(last, len(gates)) + 1)
            if (tau := gates[r - 1]) is not None and scored.score[i, r - 1] > tau
        )
        expected = next(fired, None)
        dialect = made_rounds.MadeWorld.dialect
        running = RunningCascade(
            frozen, question, TARGET, dialect, hidden if frozen.reads_hidden else None
        )
        asked, turns = play(running, episode)
        exit_ = running.close(episode)
        assert (exit_.monitor, exit_.policy) == (frozen.hash, "cascade, target 0.8")
        ended.append(asked)
        if expected is None:
            assert (asked, exit_.exit_by, exit_.exit_time) == (None, None, episode.turns)
            assert exit_.delivered == (episode.end == "answered")
            continue
        assert (asked, turns) == ("turn" if after_feedback else "action", expected)
        assert (exit_.exit_by, exit_.delivered) == (ROUND_GATE, False)
        assert exit_.score == scored.score[i, expected - 1]
    assert None in ended
    assert len(set(ended)) == 2


def test_a_failed_episode_has_no_verdict(cell: tuple[Any, ...]) -> None:
    frozen, _, _, episodes, _ = cell
    episode, question = next(iter(episodes.values()))
    running = RunningCascade(frozen, question, TARGET, made_rounds.MadeWorld.dialect)
    exit_ = running.close(replace(episode, end="engine_error", turns=0, steps=[]))
    assert (exit_.exit_time, exit_.exit_by, exit_.delivered) == (0, None, None)


def hybrid(folder: Path) -> Monitor:
    """A monitor without heads that delivers by the ten features."""
    made = small_prefix_scores.table(seed=3, groups=90, per_group=8)
    rng = np.random.default_rng(1)
    right = np.array([c is True for c in made["correct"].to_pylist()])
    at = made.schema.get_field_index("p_correct")
    vague = logit(made["p_correct"].to_numpy()) / 4 + rng.normal(size=len(right))
    made = made.set_column(at, "p_correct", pa.array(sigmoid(vague)))
    for i, name in enumerate(FEATURES):
        made = made.append_column(
            name, pa.array(2.0 * right * (i < 2) + rng.normal(size=len(right)))
        )
    policy = fit(made, DecideConfig.of(lambdas=[1], gate_budget="0.1"))
    assert policy.selection.chosen == "hybrid"
    facts = {"benchmark": "made", "agent": "steady", "fingerprints": {}, "training": {}}
    save(folder, policy, {}, SQL_DIALECT, facts)
    found = load(folder)
    assert isinstance(found, Monitor)
    return found


def test_the_hybrid_reads_its_features_at_the_end_alone(tmp_path: Path) -> None:
    frozen, asked = hybrid(tmp_path / "sentinel"), []
    rows = {t["task_id"]: t for t in made_tasks()[:12]}
    with threadpool_limits(1):
        for task in rows.values():
            episode = made_episode(task)
            matrix = trajectory_features(episode, task["text"])

            def features(now: Episode, matrix: Any = matrix) -> Any:
                asked.append(now.episode_id)
                return matrix[-1]

            running = RunningSentinel(frozen, task["text"], "1", features=features)
            assert play(running, episode) == (None, episode.turns)
            exit_ = running.close(episode)
            verdict = frozen.replay(task["text"], episode, "1", features=matrix)
            assert (exit_.exit_time, exit_.exit_by, exit_.delivered, exit_.p_delivery) == (
                verdict.t,
                verdict.by,
                verdict.delivered,
                verdict.p_delivery,
            )
            if episode.end == "answered":
                assert asked.pop() == episode.episode_id
            assert not asked
