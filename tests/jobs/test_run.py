"""`sentinel run` and single stages: what a command line means, resume, exit codes."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import pytest
import student_engine
import yaml

from jobs import __main__ as cli
from jobs.config import RunConfig
from jobs.run import load
from sentinel.errors import UserError

RAW = {
    "name": "small",
    "benchmarks": [{"name": "w"}],
    "agents": [{"name": n, "engine": "transformers", "model": "m"} for n in ("a", "b")],
}


def parse(*argv: str, command: str = "run") -> argparse.Namespace:
    return cli.build_parser(command).parse_args([command, *argv])


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(RAW))
    return path


def test_a_config_names_its_run_directory(config_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, root = load(parse(str(config_file), "name=other", "--on", "debug"))
    assert (config.name, config.on, root) == ("other", "debug", tmp_path / "runs" / "other")


def test_a_run_directory_alone_brings_its_config(config_file, tmp_path):
    config = RunConfig.from_file(config_file)
    (tmp_path / "config.json").write_text(config.to_json())
    found, root = load(parse("--run-dir", str(tmp_path)))
    assert (found, root) == (config, tmp_path)


def test_settings_alone_apply_to_the_recorded_config(config_file, tmp_path):
    (tmp_path / "config.json").write_text(RunConfig.from_file(config_file).to_json())
    found, _ = load(parse("--run-dir", str(tmp_path), "bootstrap.resamples=7"))
    assert found.bootstrap.resamples == 7
    found, _ = load(parse("bootstrap.resamples=8", "seed=3", "--run-dir", str(tmp_path)))
    assert (found.bootstrap.resamples, found.seed) == (8, 3)


def test_a_reason_to_look_again_is_carried(config_file):
    assert load(parse(str(config_file), "--again", "wider net"))[0].again == "wider net"


def test_a_sweep_with_a_bad_value_is_refused_before_anything_is_written(
    config_file, tmp_path, capsys
):
    out = tmp_path / "out"
    for sweep in ("{heads.sed: [0, 1]}", "{heads.seed: [0, x]}", "{agents: [[a]]}"):
        argv = ["run", str(config_file), f"sweep={sweep}", "--run-dir", str(out), "--on", "debug"]
        assert cli.main(argv) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert not out.exists()


@pytest.mark.parametrize(
    "more",
    [
        ("--agent", "nobody"),
        ("--agent", "a"),  # `run` is all stages
        ("--dry-run",),
        ("--wait",),
    ],
)
def test_options_that_do_not_go_together_are_refused(config_file, tmp_path, capsys, more):
    argv = ["run", str(config_file), "--run-dir", str(tmp_path / "out"), *more]
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A whole run of two students on the hospital, in a plain loop with cheap heads."""
    root = tmp_path_factory.mktemp("run") / "small"
    raw = {
        "name": "small",
        "benchmarks": [student_engine.CLINIC],
        "agents": [student("good", "0.8"), student("weak", "0.4")],
        "heads": {"kind": "tfidf"},
        "bootstrap": {"resamples": 50},
    }
    config = root.parent / "small.yaml"
    config.write_text(yaml.safe_dump(raw))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(root.parent / "cache"))
        assert cli.main(["run", str(config), "--run-dir", str(root), "--on", "debug"]) == 0
    return root


def student(name: str, skill: str) -> dict[str, str]:
    factory = "student_engine:make"
    return {"name": name, "engine": "custom", "factory": factory, "model": skill}


def test_a_run_ends_with_its_report(finished):
    assert (finished / "report.html").stat().st_size > 10_000
    rows = [json.loads(x) for x in (finished / "metrics.jsonl").read_text().splitlines()]
    timed = {r["stage"] for r in rows if r.get("event") == "seconds" and r.get("outcome") == "ok"}
    stages = set(RunConfig.from_json((finished / "config.json").read_text()).stages)
    assert timed >= stages
    assert not {"activations", "probes", "search"} & stages
    assert cli.main(["status", str(finished)]) == 0


def test_rates_of_every_later_stage_are_learned_from_it(finished, tmp_path):
    file = tmp_path / "rates.json"
    assert cli.main(["plan", "--run-dir", str(finished), "--learn", str(file)]) == 0
    found = json.loads(file.read_text())
    config = RunConfig.from_json((finished / "config.json").read_text())
    assert found["from"].startswith("run small of ")
    assert found["stages"].keys() == {*config.stages} - {"collect"}
    assert all(rate["cpu_seconds"] > 0 for rate in found["stages"].values())
    assert found["stages"]["audit"]["refits"] == found["stages"]["heads"]["encoder"] == "tfidf"


def test_running_it_again_changes_no_table(finished, monkeypatch):
    monkeypatch.setenv("SENTINEL_CACHE", str(finished.parent / "cache"))
    before = {p: p.stat().st_mtime_ns for p in (finished / "tables").rglob("*.parquet")}
    assert cli.main(["run", "--run-dir", str(finished)]) == 0
    assert {p: p.stat().st_mtime_ns for p in (finished / "tables").rglob("*.parquet")} == before


def test_each_stage_alone_is_a_replay(finished, monkeypatch):
    monkeypatch.setenv("SENTINEL_CACHE", str(finished.parent / "cache"))
    for stage in RunConfig.from_json((finished / "config.json").read_text()).stages:
        assert cli.main([stage, "--run-dir", str(finished)]) == 0


@pytest.mark.parametrize(
    ("setting", "stage"),
    [
        ("benchmarks.clinic.seed=7", "collect"),
        ("pools.seed=7", "heads"),
        ("collect.limit=200", "heads"),
        ("heads.class_weights=none", "heads"),
    ],
)
def test_a_refused_setting_changes_no_file(finished, tmp_path, monkeypatch, capsys, setting, stage):
    monkeypatch.setenv("SENTINEL_CACHE", str(finished.parent / "cache"))
    copy = tmp_path / "runs" / "copy"
    shutil.copytree(finished, copy)
    before = contents(copy)
    assert cli.main(["run", "--run-dir", str(copy), setting]) == 2
    err = capsys.readouterr().err
    assert f"stage {stage} of clinic" in err
    assert "name=NEW" in err
    assert f"rm -r '{copy / 'parts' / stage}" in err
    assert contents(copy) == before


def contents(root: Path) -> dict[Path, bytes]:
    """Every file that a later command builds on."""
    places = (root / n for n in ("tables", "parts", "manifests", "monitor"))
    files = [root / "config.json", *(p for place in places for p in place.rglob("*"))]
    return {p: p.read_bytes() for p in files if p.is_file()}


@pytest.mark.slow
def test_a_config_changed_under_a_finished_run_is_refused(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTINEL_CACHE", str(finished.parent / "cache"))
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    tables = {p: p.read_bytes() for p in (copy / "tables").rglob("*.parquet")}
    assert cli.main(["run", "--run-dir", str(copy), "collect.temperature=0.7"]) == 2
    err = capsys.readouterr().err
    assert "was finished with another configuration" in err
    assert "rm -r" in err
    assert {p: p.read_bytes() for p in (copy / "tables").rglob("*.parquet")} == tables
    assert cli.main(["run", "--run-dir", str(copy)]) == 0  # the refused setting is forgotten


@pytest.mark.slow
def test_a_further_lambda_is_no_change_of_finished_work(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("SENTINEL_CACHE", str(finished.parent / "cache"))
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    assert cli.main(["run", "--run-dir", str(copy), "decide.lambdas=[1, 2, 4, 9]"]) == 0


@pytest.mark.slow
def test_a_corrupt_part_is_named_and_done_again(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTINEL_CACHE", str(finished.parent / "cache"))
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    table = next((copy / "tables" / "labels").rglob("part.parquet"))
    whole = table.read_bytes()
    table.write_bytes(whole[:-5])
    assert cli.main(["bootstrap", "--run-dir", str(copy)]) in (0, 2)
    capsys.readouterr()
    assert cli.main(["run", "--run-dir", str(copy)]) == 0
    assert table.read_bytes() == whole


def test_a_config_beside_nothing_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such config"):
        load(parse(str(tmp_path / "x.yaml")))
