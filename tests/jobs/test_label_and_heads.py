"""Sixty made-up episodes through label, features, heads and scores, in a plain loop without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_episodes import made_collection
from sklearn.metrics import roc_auc_score

import jobs.heads
import jobs.label
from cluster import files
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from jobs.causes import causes as causes_of
from jobs.config import RunConfig
from sentinel.errors import UserError
from sentinel.tables import FEATURES


def config(**changes: Any) -> RunConfig:
    raw = {
        "name": "mini",
        "on": "debug",
        "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
        "agents": [
            {"name": n, "engine": "transformers", "model": f"nano:{n}"} for n in ("steady", "other")
        ],
        "heads": {"kind": "tfidf", "validation": 0.2},
    }
    return RunConfig.from_mapping(raw | changes)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    run_dir = RunDir(tmp_path / "run")
    run_dir.prepare({})
    made_collection(run_dir)
    return run_dir


def run(stage: Any, run_dir: RunDir, settings: RunConfig) -> None:
    with open_cluster("debug", 1) as cluster:
        stage.run(settings, run_dir, cluster)


def metrics(run_dir: RunDir, event: str) -> list[dict[str, Any]]:
    lines = run_dir.metrics_path.read_text().splitlines()
    return [m for m in map(json.loads, lines) if m.get("event") == event]


def told(run_dir: RunDir) -> list[str]:
    return causes_of(run_dir.metrics_path, "heads")


def markers(run_dir: RunDir) -> dict[Path, float]:
    return {p: p.stat().st_mtime_ns for p in (run_dir.root / "parts").rglob("*.done.json")}


def test_from_episodes_to_out_of_fold_scores(run_dir: RunDir) -> None:
    run(jobs.label, run_dir, config())
    run(jobs.heads, run_dir, config())

    labels = run_dir.read("labels", "made", "steady").to_pylist()
    assert len(labels) == 3 * 60
    typed = {r["episode_id"]: r for r in labels if r["label"] == "typed"}
    assert {r["source"] for r in typed.values()} == {
        "match",
        "mismatch",
        "unanswerable",
        "abstained",
    }
    (gold,) = metrics(run_dir, "gold")
    assert (gold["queries"], gold["failed"]) == (45, 0)

    features = run_dir.read("features", "made", "steady").to_pylist()
    episodes = {e["episode_id"]: e for e in run_dir.read("episodes", "made", "steady").to_pylist()}
    assert len(features) == sum(e["turns"] + 1 for e in episodes.values())
    for row in features:
        neutral = [row[name] for name in FEATURES] == [0.0] * 10
        assert neutral == (row["t"] == 0)
        assert row["failed_refs"] == row["bad_joins"] == 0

    scores = run_dir.read("scores", "made", "steady").to_pylist()
    assert len(scores) == 2 * len(features)
    tasks = {t["task_id"]: t for t in run_dir.read("tasks", "made").to_pylist()}
    for row in scores:
        task = tasks[episodes[row["episode_id"]]["task_id"]]
        assert row["fold"] == task["fold"]
        assert row["logit"] is not None
    last = [
        (typed[r["episode_id"]]["correct"], r["logit"])
        for r in scores
        if r["head"] == "correctness"
        and r["t"] == episodes[r["episode_id"]]["turns"]
        and typed[r["episode_id"]]["source"] in ("match", "mismatch")
    ]
    assert roc_auc_score(*np.array(last).T) > 0.9
    first = [
        (not tasks[episodes[r["episode_id"]]["task_id"]]["answerable"], r["logit"])
        for r in scores
        if r["head"] == "answerability" and r["t"] == 0
    ]
    assert roc_auc_score(*np.array(first).T) > 0.9
    assert len(metrics(run_dir, "fit")) == 12


def test_finished_parts_are_not_done_again_and_one_more_agent_changes_nothing(
    run_dir: RunDir,
) -> None:
    run(jobs.label, run_dir, config())
    run(jobs.heads, run_dir, config())
    before = markers(run_dir)
    folder = run_dir.parts("heads", "made", "steady")
    lost = folder / "correctness-fold2.done.json"
    scores = run_dir.read("scores", "made", "steady")
    lost.unlink()
    made_collection(run_dir, ("steady", "other"))
    run(jobs.label, run_dir, config())
    run(jobs.heads, run_dir, config())
    after = markers(run_dir)
    assert {p for p in before if before[p] != after[p]} == {lost}
    assert run_dir.read("scores", "made", "steady").equals(scores)
    assert run_dir.read("scores", "made", "other").num_rows
    assert len(metrics(run_dir, "gold")) == 1


def test_a_changed_setting_under_finished_work_is_refused(run_dir: RunDir) -> None:
    run(jobs.label, run_dir, config())
    run(jobs.heads, run_dir, config())
    with pytest.raises(UserError, match="another configuration"):
        run(jobs.heads, run_dir, config(heads={"kind": "tfidf", "class_weights": "none"}))
    with pytest.raises(UserError, match="another configuration"):
        run(jobs.heads, run_dir, config(label="strict-2022"))


def test_a_label_that_was_not_computed_is_named(run_dir: RunDir) -> None:
    run(jobs.label, run_dir, config())
    with pytest.raises(UserError, match=r"no label 'success'.*typed"):
        run(jobs.heads, run_dir, config(label="success"))


def test_one_class_leaves_null_logits_with_the_cause_and_the_other_head_whole(
    run_dir: RunDir,
) -> None:
    made_collection(run_dir, end="abstained", answer=None)
    run(jobs.label, run_dir, config())
    run(jobs.heads, run_dir, config())
    scores = run_dir.read("scores", "made", "steady").to_pylist()
    logits = {h: [r["logit"] for r in scores if r["head"] == h] for h in jobs.heads.NAMES}
    assert set(logits["correctness"]) == {None}
    assert None not in logits["answerability"]
    causes = [m["not_fitted"] for m in metrics(run_dir, "fit") if "not_fitted" in m]
    assert len(causes) == 6
    assert all("no eligible" in c for c in causes)
    assert told(run_dir) == [
        "made/steady 6 fits not fitted: correctness: no eligible episode to train on"
    ]


def test_stopped_episodes_are_refused_or_dropped_and_counted(run_dir: RunDir) -> None:
    made_collection(run_dir, end="stopped", answer=None)
    with pytest.raises(UserError, match="60 stopped"):
        run(jobs.label, run_dir, config())
    run(jobs.label, run_dir, config(decide={"drop_stopped": True}))
    assert set(run_dir.read("labels", "made", "steady")["correct"].to_pylist()) == {None}
    with pytest.raises(UserError, match="60 stopped"):
        run(jobs.heads, run_dir, config())


def test_a_fit_that_fails_leaves_the_others_and_is_tried_again(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentinel.heads import folds
    from sentinel.heads.config import HeadFailure

    run(jobs.label, run_dir, config())
    whole = folds.fit_fold

    def fails_once(snapshots: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
        if plan.fold == 1 and plan.head == "correctness":
            raise HeadFailure("the loss became nan in epoch 1")
        return whole(snapshots, plan, *args, **kwargs)

    monkeypatch.setattr(folds, "fit_fold", fails_once)
    run(jobs.heads, run_dir, config())
    (failed,) = metrics(run_dir, "fit_failed")
    assert (failed["item"], failed["cause"]) == ("correctness-fold1", failed["cause"])
    assert "loss became nan" in failed["cause"]
    assert not run_dir.table_path("scores", "made", "steady").exists()
    assert len(metrics(run_dir, "fit")) == 11
    monkeypatch.undo()
    monkeypatch.setenv("SENTINEL_CACHE", str(run_dir.root.parent / "cache"))
    run(jobs.heads, run_dir, config())
    assert len(metrics(run_dir, "fit")) == 12
    assert run_dir.table_path("scores", "made", "steady").exists()


def test_agents_that_were_not_collected_are_left_out(run_dir: RunDir) -> None:
    run(jobs.label, run_dir, config())
    assert not run_dir.table_path("labels", "made", "other").exists()
    empty = RunDir(run_dir.root.parent / "empty")
    run(jobs.label, empty, config())
    run(jobs.heads, empty, config())
    assert not (empty.root / "tables").exists()


def test_models_are_kept_beside_their_parts(run_dir: RunDir) -> None:
    from sentinel.heads.folds import load_fold

    run(jobs.label, run_dir, config())
    run(jobs.heads, run_dir, config())
    folder = run_dir.parts("heads", "made", "steady") / "model-correctness-final"
    assert files.read_json(folder / "head.json") is not None
    assert load_fold(folder).logits(["QUESTION: x"]).shape == (1,)


@pytest.mark.slow
def test_a_corrupt_checkpoint_stops_its_fold_alone_and_the_next_run_ends_it(
    run_dir: RunDir,
) -> None:
    from jobs.causes import causes
    from jobs.status import lines, status

    small = {"width": 16, "layers": 1, "epochs": 1, "batch_size": 64, "validation": 0.2}
    run(jobs.label, run_dir, config(heads=small))
    folder = run_dir.parts("heads", "made", "steady") / "checkpoints-correctness-fold1"
    (folder / "epoch-0001").mkdir(parents=True)
    (folder / "epoch-0001" / "manifest.json").write_text("{}")
    run(jobs.heads, run_dir, config(heads=small))
    (failed,) = metrics(run_dir, "fit_failed")
    assert failed["item"] == "correctness-fold1"
    assert "epoch-0001 is corrupt" in failed["cause"]
    assert len(metrics(run_dir, "fit")) == 11
    (told,) = causes(run_dir.metrics_path, "heads")
    assert "made/steady correctness-fold1 stopped: " in told
    assert "epoch-0001 is corrupt" in told
    shown = lines(status(run_dir.root, config(heads=small)))
    assert shown[-1] == f"go on with: sentinel run --run-dir '{run_dir.root}'"
    assert any("is corrupt" in line for line in shown)

    run(jobs.heads, run_dir, config(heads=small))
    assert len(metrics(run_dir, "fit")) == 12
    assert causes(run_dir.metrics_path, "heads") == []
    assert not list(folder.parent.glob("checkpoints-*"))


SMALL = {"width": 16, "layers": 1, "epochs": 1, "batch_size": 64, "validation": 0.2, "folds": 5}


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_its_fits_and_is_told(run_dir: RunDir) -> None:
    settings = config(heads={**SMALL, "learning_rate": 1e30, "batch_size": 4})
    run(jobs.label, run_dir, settings)
    run(jobs.heads, run_dir, settings)
    failed = metrics(run_dir, "fit_failed")
    assert len(failed) == 12
    assert all("the loss became nan" in m["cause"] for m in failed)
    (line,) = told(run_dir)
    assert line == "made/steady 12 fits stopped: HeadFailure: the loss became nan in epoch 1"
    assert not run_dir.table_path("scores", "made", "steady").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "says"), [("window", "reads 96 tokens"), ("padding", "no padding token")]
)
def test_an_encoder_that_cannot_serve_fails_its_fits_and_the_run_goes_on(
    run_dir: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, says: str
) -> None:
    """Exit code 3; `status` names the cause and what resumes; another encoder then finishes."""
    from tiny_encoders import write_encoder

    from jobs.__main__ import main

    good = write_encoder(tmp_path / "good", "minilm")
    bad = write_encoder(tmp_path / "bad", "minilm", pad=what != "padding")
    windows = {"max_train_tokens": 96, "max_score_tokens": 96}
    settings = config(heads={**SMALL, **windows, "encoder": str(good)})
    one = settings.model_copy(update={"agents": settings.agents[:1]})
    run(jobs.label, run_dir, one)
    run_dir.prepare(one.model_dump(mode="json"))
    wide = ["heads.max_score_tokens=97"] if what == "window" else []
    asked = ["heads", "--run-dir", str(run_dir.root)]
    assert main([*asked, f"heads.encoder={bad}", *wide]) == 3
    err = capsys.readouterr().err
    assert err.count(says) == 1
    assert "missing: heads of made/steady" in err
    assert "Traceback" not in err
    assert len(metrics(run_dir, "fit_failed")) == 12
    assert main(["status", str(run_dir.root)]) == 3
    shown = capsys.readouterr().out
    assert "met: made/steady 12 fits stopped: " in shown
    assert says in shown
    assert f"go on with: sentinel run --run-dir '{run_dir.root}'" in shown

    assert main([*asked, f"heads.encoder={good}", "heads.max_score_tokens=96"]) == 0
    assert told(run_dir) == []
    assert main([*asked, f"heads.encoder={bad}", *wide]) == 2  # under finished work: refused
    assert "another configuration" in capsys.readouterr().err


@pytest.mark.slow
def test_a_benchmark_whose_encoder_cannot_serve_leaves_the_other_alone(
    run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_encoders import write_encoder

    for name in ("tasks", "episodes", "turns"):
        agent = None if name == "tasks" else "steady"
        table = run_dir.read(name, "made", agent)
        at = table.column_names.index("benchmark")
        table = table.set_column(at, table.schema.field(at), [["second"] * table.num_rows])
        run_dir.write_table(name, "second", agent, table, stage="collect", source="x")
    kind = "made_episodes:MadeBenchmark"
    settings = config(
        heads=SMALL, benchmarks=[{"name": n, "kind": kind} for n in ("second", "made")]
    )
    run(jobs.label, run_dir, settings)
    bad = str(write_encoder(tmp_path / "bad", "minilm"))
    whole = jobs.heads.head_settings

    def one_is_bad(settings: RunConfig, benchmark: str) -> dict[str, Any]:
        found = whole(settings, benchmark)
        return {**found, "encoder": bad} if benchmark == "second" else found

    monkeypatch.setattr(jobs.heads, "head_settings", one_is_bad)
    run(jobs.heads, run_dir, settings)
    assert run_dir.table_path("scores", "made", "steady").exists()
    assert not run_dir.table_path("scores", "second", "steady").exists()
    assert {m["benchmark"] for m in metrics(run_dir, "fit_failed")} == {"second"}
    (line,) = told(run_dir)
    assert line.startswith("second/steady 12 fits stopped: ")
    assert "reads 96 tokens, 4096 are configured" in line
    assert len(metrics(run_dir, "fit")) == 12
    monkeypatch.setattr(jobs.heads, "head_settings", whole)
    run(jobs.heads, run_dir, settings)
    assert len(metrics(run_dir, "fit")) == 24  # the first twelve were kept
    assert told(run_dir) == []
