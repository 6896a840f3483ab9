import json

import pytest

from jobs.__main__ import main

CONFIG = """
name: small
benchmarks: [{from: clinic, n_questions: 200}]
agents: [nano-hasty]
monitors: [sentinel]
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG)
    return path


def test_a_plan_from_a_real_pilot(config, tmp_path, capsys):
    assert main(["plan", str(config), "--episodes", "3"]) == 0
    found = json.loads((tmp_path / "runs/small/plan.json").read_text())
    (agent,) = found["agents"]
    assert agent["episodes"] == 200
    assert agent["pilot"]["episodes"] == 3
    assert agent["generated_tokens"]["mean"] > 0
    assert agent["gpu_hours"] == 0
    assert agent["dollars"] is None
    assert found["collect"]["memory_mb"] >= agent["pilot"]["peak_mb"]
    assert found["heads"]["hours"] > 0
    assert "clinic/nano-hasty" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--episodes", "0"], "at least one"),
        (["--rates", "none.json"], "no rates in none.json"),
        (["--learn", "rates.json"], "no finished stage"),
    ],
)
def test_what_cannot_be_planned_is_named(config, argv, says, capsys):
    assert main(["plan", str(config), *argv]) == 2
    assert says in capsys.readouterr().err
