"""`sweep:` as run directories: stable names, all checked first, one failure leaves the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import student_engine
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.ledger import Ledger
from jobs import __main__ as cli
from jobs.config import RunConfig
from jobs.submit import sweep_step
from jobs.sweep_run import elements, name
from sentinel.errors import UserError

RAW = {
    "name": "small",
    "benchmarks": [{"name": "w"}],
    "agents": [{"name": "a", "engine": "transformers", "model": "m"}],
}


def config(sweep: dict[str, list[object]]) -> RunConfig:
    return RunConfig.from_mapping({**RAW, "sweep": sweep})


def test_every_combination_is_a_run_of_its_own(tmp_path):
    found = elements(config({"heads.seed": [0, 1], "decide.gate_budget": ["0.01"]}), tmp_path)
    assert [(p.name, c.heads.seed, c.decide.gate_budget) for p, c in found] == [
        ("sweep-heads.seed=0,decide.gate_budget=0.01", 0, "0.01"),
        ("sweep-heads.seed=1,decide.gate_budget=0.01", 1, "0.01"),
    ]
    assert all(not c.sweep and "heads.seed" in str(c.again) for _, c in found)


def test_a_further_value_moves_no_run(tmp_path):
    few = elements(config({"heads.seed": [0, 1]}), tmp_path)
    more = elements(config({"heads.seed": [7, 1, 0]}), tmp_path)
    assert {p for p, _ in few} < {p for p, _ in more}


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_names_are_one_folder_each_and_never_collide(values):
    first, second = (name({"heads.encoder": v}) for v in values)
    assert first != second
    for one in (first, second):
        assert one.startswith("sweep-heads.encoder=")
        assert not set(one) & set("/%\\\n ")
        assert len(one.encode()) < 200


@pytest.mark.parametrize(
    ("sweep", "cause"),
    [
        ({"heads.sed": [0]}, "unknown key"),
        ({"heads.seed": [0, "x"]}, "heads.seed"),
        ({"heads.seed": [1, 1]}, "twice"),
        ({"heads.seed": []}, "no combination"),
    ],
)
def test_a_bad_combination_is_told_before_any_runs(tmp_path, sweep, cause):
    with pytest.raises(UserError, match=cause):
        elements(config(sweep), tmp_path)


def test_on_slurm_an_element_runs_all_stages_of_its_directory(tmp_path):
    one = config({"heads.seed": [0, 1]})
    step = sweep_step(one, elements(one, tmp_path), tmp_path)
    assert [c.element for c in step.commands] == ["sweep-heads.seed=0", "sweep-heads.seed=1"]
    command = step.commands[1]
    assert command.command()[3:6] == ["run", "--run-dir", str(tmp_path / "sweep-heads.seed=1")]
    assert command.record_dir == str(tmp_path)


def test_elements_share_the_ledger_of_all_runs(tmp_path):
    runs = tmp_path / "runs"
    assert Ledger.beside(runs / "x" / "sweep-a=1").folder == Ledger.beside(runs / "y").folder


@pytest.mark.slow
def test_one_failed_element_leaves_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    raw = {
        "name": "small",
        "benchmarks": [{**student_engine.CLINIC, "n_questions": 200}],
        "agents": [{"name": "good", "engine": "custom", "factory": "student_engine:make",
                    "model": "0.8"}],
        "collect": {"limit": 120},
        "heads": {"kind": "tfidf", "folds": 2},
        "bootstrap": {"resamples": 20},
        # There is no such label: that element fails at its heads.
        "sweep": {"label": ["judge:nobody:0000", "typed"]},
    }  # fmt: skip
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(raw))
    root = tmp_path / "runs" / "small"
    argv = ["run", str(path), "--run-dir", str(root), "--on", "debug"]
    assert cli.main(argv) == 3
    told = capsys.readouterr()
    assert "sweep small: 1 of 2 finished" in told.out
    assert "failed: sweep-label=judge~3Anobody~3A0000: no label" in told.err
    good = root / "sweep-label=typed"
    assert (good / "report.html").exists()
    assert not (root / "sweep-label=judge~3Anobody~3A0000" / "report.html").exists()
    assert cli.main(["status", str(root)]) == 3
    assert "sweep-label=typed" in capsys.readouterr().out
    # The recorded sweep goes on from its folder; what is finished is a replay.
    before = (good / "tables").stat().st_mtime_ns
    assert cli.main(["run", "--run-dir", str(root), "--on", "debug"]) == 3
    assert (good / "tables").stat().st_mtime_ns == before
    assert json.loads((root / "config.json").read_text())["sweep"]


def test_a_stage_of_a_sweep_names_its_folders(tmp_path: Path, capsys):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({**RAW, "sweep": {"heads.seed": [0]}}))
    assert cli.main(["label", str(path), "--run-dir", str(tmp_path / "r")]) == 2
    assert "sweep-…" in capsys.readouterr().err
