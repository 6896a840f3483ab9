"""`status` reads files and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import __main__ as cli
from jobs.config import RunConfig
from jobs.status import lines, status


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, RunConfig]:
    agents = [{"name": n, "engine": "transformers", "model": "m"} for n in ("a", "b")]
    raw = {"name": "r", "benchmarks": [{"name": "w"}], "agents": agents}
    config = RunConfig.from_mapping(raw)
    (tmp_path / "config.json").write_text(config.to_json())
    return tmp_path, config


def table(root: Path, name: str, agent: str) -> None:
    folder = root / "tables" / name / "benchmark=w" / f"agent={agent}"
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"")


def test_nothing_done(run):
    state = status(*run)
    assert not state["complete"]
    assert [s["done"] for s in state["stages"]] == [0] * 6
    assert f"sentinel run --run-dir '{run[0]}'" in lines(state)[-1]


def test_a_stage_is_complete_when_every_agent_is(run):
    root, config = run
    table(root, "episodes", "a")
    state = status(root, config)["stages"][0]
    assert (state["done"], state["of"], state["missing"]) == (1, 2, ["w/b"])
    table(root, "episodes", "b")
    assert status(root, config)["stages"][0]["complete"]


def test_items_count_markers_and_whole_journal_lines(run):
    root, config = run
    journal = root / "parts" / "collect" / "agent=a"
    journal.mkdir(parents=True)
    (journal / "w0.jsonl").write_bytes(b'{"x": 1}\n{"x": 2}\n{"x": ')
    (journal / "q.done.json").write_text("{}")
    assert status(root, config)["stages"][0]["items"] == 3


def test_seconds_sum_over_tries_and_torn_lines_are_passed_over(run):
    root, config = run
    rows = [{"stage": "collect", "event": "seconds", "seconds": s} for s in (1.5, 2.0)]
    text = "\n".join([*map(json.dumps, rows), "null", '{"stage": "coll'])
    (root / "metrics.jsonl").write_text(text)
    assert status(root, config)["stages"][0]["seconds"] == 3.5


def test_exit_code_and_json(run, capsys):
    root, _ = run
    assert cli.main(["status", str(root), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["name"] == "r"
    for name in ("episodes", "labels", "scores", "decisions", "intervals"):
        for agent in ("a", "b"):
            table(root, name, agent)
    (root / "report.html").write_text("")
    assert cli.main(["status", str(root)]) == 0
    assert "missing" not in capsys.readouterr().out


def test_no_run_there(tmp_path, capsys):
    assert cli.main(["status", str(tmp_path / "none")]) == 2
    assert "is no run directory" in capsys.readouterr().err
