"""The final artifact of a small real run decides exactly as the run's own tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_episodes import made_collection
from scored_runs import finished

import jobs.calibrate
import jobs.heads
import jobs.label
from cluster.head_stages import Where, read_episodes, read_tasks
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel.decide import apply, from_table
from sentinel.decide.play import EXIT_NAMES, systems_of
from sentinel.errors import UserError
from sentinel.heads.config import HEADS
from sentinel.heads.live import LiveTfidf
from sentinel.monitor import Monitor, load

ENCODER = {"width": 32, "layers": 1, "epochs": 2, "learning_rate": 0.01, "batch_size": 8}


def config(**heads: Any) -> RunConfig:
    return RunConfig.from_mapping(
        {
            "name": "mini",
            "on": "debug",
            "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
            "agents": [{"name": "steady", "engine": "transformers", "model": "nano:steady"}],
            "heads": {"folds": 2, "validation": 0.2, **heads},
            # a gate that may exit some, so that every rule fires somewhere
            "decide": {"gate_budget": "0.2", "lambdas": [0.5, 1, 4]},
        }
    )


@pytest.fixture(scope="module", params=["tfidf", pytest.param("encoder", marks=pytest.mark.slow)])
def run_dir(request: Any, tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp(request.param)
    kind = {"kind": "tfidf"} if request.param == "tfidf" else ENCODER
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(root / "cache"))
        yield finished(root, config(**kind))


@pytest.fixture
def monitor(run_dir: RunDir) -> Monitor:
    found = load(run_dir.root / "monitor" / "made" / "steady" / "sentinel")
    assert isinstance(found, Monitor)
    return found


def test_every_decision_from_the_runs_logits(run_dir: RunDir, monitor: Monitor) -> None:
    """Every pool, system and stake, from the logits of the run's own table: exactly."""
    scores = run_dir.read("scores", "made", "steady").to_pylist()
    at = {(s["episode_id"], s["t"], s["head"]): s["logit"] for s in scores}
    columns = from_table(run_dir.read("prefix_scores", "made", "steady"))
    assert systems_of(monitor.policy) == ("vanilla", "gate", "full", "early-exit", "chow") + (
        ("exact-bar",) if monitor.policy.unanswerable_map else ()
    )
    fired = set()
    for system in systems_of(monitor.policy):
        for lam in monitor.lambdas:
            batch = apply(monitor.policy, columns, lam, system)
            for e, name in enumerate(columns.episode):
                watch = monitor.watch(lam, system)
                verdict = None
                for t in range(int(columns.T[e]) + 1):
                    verdict = watch.read(
                        *(at[name, t, head] for head in HEADS),
                        last=t == columns.T[e],
                        answered=bool(columns.answered[e]),
                    )
                    if verdict.ends:
                        break
                assert verdict is not None
                assert verdict.ends
                assert verdict.t == batch.exit_time[e]
                assert verdict.by == EXIT_NAMES[batch.exit_by[e]]
                assert verdict.delivered == batch.delivered[e]
                p = batch.p[e]
                assert verdict.p_delivery == (None if np.isnan(p) else p)
                fired.add(verdict.by)
    assert {None, "gate", "chow"} <= fired


def test_every_held_out_decision_from_the_text(run_dir: RunDir, monitor: Monitor) -> None:
    """The frozen heads read the transcript again: same logits, same decisions as the tables."""
    where = Where(str(run_dir.root), "made", "steady")
    scores = run_dir.read("scores", "made", "steady").to_pylist()
    at = {(s["episode_id"], s["t"], s["head"]): s["logit"] for s in scores}
    tasks = read_tasks(where)
    held = {t for t, row in tasks.items() if row["pool"] == "heldout"}
    episodes = [e for e in read_episodes(where, None, telemetry=True) if e.task_id in held]
    rows = {
        (r["episode_id"], r["system"], r["lam"]): r
        for r in run_dir.read("decisions", "made", "steady").to_pylist()
    }
    exact = isinstance(monitor.heads.live, LiveTfidf)
    seen = 0
    for episode in episodes:
        question = tasks[episode.task_id]["text"]
        reading = monitor.heads.episode()
        for t in range(len(episode.steps) + 1):
            found = reading.logits(monitor.render(question, episode, t))
            for head in HEADS:
                expected = at[episode.episode_id, t, head]
                assert found[head] == (expected if exact else pytest.approx(expected, abs=1e-4))
        for system in systems_of(monitor.policy):
            for lam in monitor.lambdas:
                verdict = monitor.replay(question, episode, lam, system)
                row = rows[episode.episode_id, system, float(lam)]
                assert (verdict.t, verdict.by, verdict.delivered) == (
                    row["exit_time"],
                    row["exit_by"],
                    row["delivered"],
                )
                seen += 1
    assert seen == len(rows) > 100


def test_the_artifact_says_where_it_is_from(run_dir: RunDir, monitor: Monitor) -> None:
    facts = monitor.facts
    training = facts["training"]
    assert (facts["benchmark"], facts["agent"], training["label"]) == ("made", "steady", "typed")
    assert set(training["seeds"]) == {
        "pools.seed",
        "heads.seed",
        "decide.estimator_seed",
        "bootstrap.seed",
    }
    assert training["git"] is None or len(training["git"]["commit"]) == 40
    assert training["packages"]["scikit-learn"]
    assert training["auroc"]["train_out_of_fold"]["correctness"] > 0.5
    assert facts["fingerprints"]["agent"]["hashes"] == [""]  # made episodes had no weights
    assert facts["fingerprints"]["task"]["pools"]
    assert set(facts["heads"]) == set(HEADS)
    assert facts["heads"]["correctness"]["meta"]["fold"] is None
    policy = json.loads((run_dir.root / "monitor/made/steady/policy.json").read_text())
    assert monitor.policy.to_dict() == {k: v for k, v in policy.items() if k != "benchmark"}


def test_it_moves_and_is_written_once(run_dir: RunDir, monitor: Monitor, tmp_path: Path) -> None:
    """A copy elsewhere is the same monitor; another calibrate leaves a whole one alone and mends
    a damaged one; nothing temporary stays."""
    place = run_dir.root / "monitor/made/steady"
    copied = load(shutil.copytree(place / "sentinel", tmp_path / "m"))
    assert copied.facts["hash"] == monitor.facts["hash"]
    tfidf = isinstance(monitor.heads.live, LiveTfidf)
    settings = config(**({"kind": "tfidf"} if tfidf else ENCODER))
    before = (place / "sentinel/manifest.json").stat().st_mtime_ns
    with open_cluster("debug", 1) as cluster:
        jobs.calibrate.run(settings, run_dir, cluster)
        assert (place / "sentinel/manifest.json").stat().st_mtime_ns == before
        (place / "sentinel/policy.json").write_text("{}")
        with pytest.raises(UserError, match=r"policy\.json was changed"):
            load(place / "sentinel")
        jobs.calibrate.run(settings, run_dir, cluster)
    assert load(place / "sentinel").facts["files"] == monitor.facts["files"]
    assert sorted(p.name for p in place.iterdir()) == ["policy.json", "sentinel"]


def test_scores_without_their_heads_give_no_monitor(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    settings = config(kind="tfidf")
    run_dir = RunDir(tmp_path / "runs" / "mini")
    run_dir.prepare({})
    made_collection(run_dir)
    with open_cluster("debug", 1) as cluster:
        for stage in (jobs.label, jobs.heads):
            stage.run(settings, run_dir, cluster)
        shutil.rmtree(run_dir.parts("heads", "made", "steady") / "model-correctness-final")
        jobs.calibrate.run(settings, run_dir, cluster)
    assert not (run_dir.root / "monitor/made/steady/sentinel").exists()
    lines = map(json.loads, run_dir.metrics_path.read_text().splitlines())
    (event,) = [m for m in lines if m.get("event") == "no_monitor"]
    assert "no fitted head of correctness" in event["cause"]
