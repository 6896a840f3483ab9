"""`sentinel compare-encoders`: same folds, same episodes, nothing of the held-out pool."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import made_run
import numpy as np
import pytest
import student_engine
import yaml

from cluster import files
from cluster.run_dir import RunDir
from jobs.__main__ import main
from sentinel.report.audit import encoder_rows
from sentinel.report.load import load
from sentinel.tables import SCORES

AGENTS = {"steady": made_run.MAKERS["steady"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose heads have scored; its config says `nano`, its scores are made up."""
    folder = tmp_path_factory.mktemp("encoders")
    return made_run.make_run(folder, AGENTS, questions=180, decided=False)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> RunDir:
    return RunDir(shutil.copytree(made, tmp_path / "runs" / "a"))


def compare(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["compare-encoders", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def other_run(run: RunDir, gain: float) -> RunDir:
    """The same run with a wider encoder, whose logits know the outcome better by `gain`."""
    found = RunDir(shutil.copytree(run.root, run.root.parent / "b"))
    config = json.loads(found.config_path.read_text())
    config["heads"]["width"] = 128
    files.write_json(found.config_path, config)
    labels = run.read("labels", "clinic", "steady").to_pylist()
    correct = {r["episode_id"]: r["correct"] for r in labels if r["label"] == "typed"}
    ends = run.read("episodes", "clinic", "steady").to_pylist()
    tasks = {t["task_id"]: t for t in run.read("tasks", "clinic").to_pylist()}
    answerable = {e["episode_id"]: tasks[e["task_id"]]["answerable"] for e in ends}
    rows = run.read("scores", "clinic", "steady").to_pylist()
    for row in rows:
        name = row["episode_id"]
        right = correct[name] if row["head"] == "correctness" else not answerable[name]
        row["logit"] += gain * right
    table = SCORES.from_rows(rows)
    found.write_table("scores", "clinic", "steady", table, stage="heads", source="wider")
    return found


def test_two_runs(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    other = other_run(run, 2.0)
    code, out, _ = compare(capsys, run.root, other.root)
    assert code == 0
    assert "clinic/steady: adopt (nano 128×2 for nano 64×2)" in out
    found = json.loads((run.root / "encoder_rule.json").read_text())
    assert found["adopt"] == {"clinic/steady": True}
    rows = encoder_rows(load(run.root).encoder_rule)  # as the report reads it
    assert [(r["head"], r["encoder"], r["against"]) for r in rows] == [
        (head, encoder, against)
        for head in ("answerability", "correctness")
        for encoder, against in (
            ("nano 128×2", "nano 64×2"),
            ("nano 64×2", "tfidf"),
            ("nano 128×2", "tfidf"),
        )
    ]
    for row in rows:
        assert row["delta"] == pytest.approx(row["auroc"] - row["auroc_against"])
        assert row["adopted"] == (row["delta"] >= 0.02)
    assert not (run.root.parent.parent / "ledgers").exists()  # the held-out pool was not read
    code, out, _ = compare(capsys, other.root, run.root, "--json")
    assert json.loads(out)["adopt"] == {"clinic/steady": False}


def test_other_heads_are_fitted_on_the_same_folds_and_kept(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (run.root, "heads.kind=tfidf", "--on", "debug")
    code, out, _ = compare(capsys, *asked)
    assert code == 0
    assert "tfidf for nano 64×2" in out
    parts = {p: p.stat().st_mtime_ns for p in (run.root / "parts").rglob("*.parquet")}
    first = json.loads((run.root / "encoder_rule.json").read_text())
    lost = sorted((run.root / "parts/compare-encoders").rglob("*.done.json"))[0]
    lost.unlink()
    assert compare(capsys, *asked)[0] == 0
    again = {p: p.stat().st_mtime_ns for p in (run.root / "parts").rglob("*.parquet")}
    assert sum(again[p] != parts[p] for p in parts) == 1
    assert json.loads((run.root / "encoder_rule.json").read_text()) == first
    assert [r["encoder"] for r in first["rows"]] == ["tfidf"] * 2
    assert all(r["missing"] == 0 and r["auroc"] is not None for r in first["rows"])


def broken(run: RunDir, what: str) -> Path:
    other = other_run(run, 0.0)
    if what == "folds":
        folder = other.parts("heads", "clinic", "steady")
        marker = next(p for p in folder.glob("*.done.json") if "snapshots" in p.name)
        from sentinel.heads.snapshots import Snapshots

        for _, part in other.read_parts("heads", "clinic", "steady", "snapshots"):
            snapshots = Snapshots.from_table(part)
            fold = np.where(snapshots.fold == 1, 2, snapshots.fold)
            changed = Snapshots(**{**snapshots.__dict__, "fold": fold})
            digest = json.loads(marker.read_text())["input_hash"]
            tables = {"snapshots": changed.to_table()}
            other.commit("heads", "clinic", "steady", "snapshots", tables, digest)
    else:
        shutil.rmtree(other.root / "tables/scores")
    return other.root


@pytest.mark.parametrize(
    ("what", "says"), [("folds", "their folds or their labels differ"), ("scores", "have scored")]
)
def test_another_sample_is_refused(
    run: RunDir, what: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = compare(capsys, run.root, broken(run, what))
    assert code == 2
    assert says in err
    assert not (run.root / "encoder_rule.json").exists()


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ([], "name what to compare with"),
        (["decide.lambdas=[1]"], "only heads are fitted"),
        (["heads.folds=3"], "heads.folds is the run's own"),
        (["heads.width=64"], "the settings the run's heads have"),
        (["heads.wdth=64"], "heads.wdth: unknown key"),
        (["heads.encoder=./none"], "no config.json in encoder folder"),
        (["/nowhere/run"], "is no run directory"),
    ],
)
def test_what_cannot_be_compared_is_named(
    run: RunDir, rest: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = compare(capsys, run.root, *rest)
    assert code == 2
    assert says in err


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config whose run does not exist yet: an agent on the hospital, TF–IDF heads."""
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    agent = {
        "name": "good",
        "engine": "custom",
        "factory": "student_engine:make",
        "model": "0.6",
    }
    raw = {
        "name": "two",
        "benchmarks": [student_engine.CLINIC],
        "agents": [agent],
        "heads": {"kind": "tfidf", "folds": 2},
        "bootstrap": {"resamples": 50},
    }
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(raw))
    return tmp_path / "two.yaml"


@pytest.mark.slow
def test_two_encoders_from_one_config(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is prepared by hand: the run is made up to its heads, and kept for the next one."""
    nano = ["heads.kind=encoder", "heads.width=16", "heads.layers=1", "heads.epochs=1"]
    code, out, _ = compare(capsys, small, *nano, "--on", "debug", "--control")
    assert code == 0
    root = small.parent / "runs" / "two"
    assert "(nano 16×1 for tfidf)" in out
    found = json.loads((root / "encoder_rule.json").read_text())
    assert {(r["encoder"], r["against"]) for r in found["rows"]} == {("nano 16×1", "tfidf")}
    assert all(r["auroc"] is not None and r["missing"] == 0 for r in found["rows"])
    controls = found.pop("controls")
    assert [r["encoder"] for r in controls] == ["tfidf", "nano 16×1"]
    assert all(r["passed"] and r["missing"] == 0 and r["n"] > 50 for r in controls)
    assert out.count(": at chance") == 2
    assert sorted(p.name for p in (root / "parts").iterdir()) == [
        "collect",
        "compare-encoders",
        "heads",
        "label",
    ]
    assert not (root / "monitor").exists()  # no decision was made

    before = {p: p.stat().st_mtime_ns for p in root.rglob("*.parquet")}
    assert compare(capsys, small, *nano, "--on", "debug")[0] == 0
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*.parquet")} == before
    assert json.loads((root / "encoder_rule.json").read_text()) == found
    assert json.loads((root / "config.json").read_text())["heads"]["kind"] == "tfidf"


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (["heads.wdth=64"], "heads.wdth: unknown key"),
        (["heads.class_weights=balanced"], "the settings the run's heads have"),
        (["heads.kind=encoder", "heads.encoder=./none"], "no config.json in encoder folder"),
        (["collect.limit=3"], "only heads are fitted"),
    ],
)
def test_other_heads_are_checked_before_a_config_is_run(
    small: Path, rest: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = compare(capsys, small, *rest, "--on", "debug")
    assert code == 2
    assert says in err
    assert not (small.parent / "runs").exists()


def test_a_run_directory_beside_a_run_is_refused(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = compare(capsys, run.root, "heads.kind=tfidf", "--run-dir", run.root)
    assert code == 2
    assert "--run-dir goes with a config" in err
