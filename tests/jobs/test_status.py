"""`status` reads files and nothing else."""

from __future__ import annotations

import json
import os
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
    assert [s["done"] for s in state["stages"]] == [0] * 7
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
    for name in ("episodes", "labels", "scores", "audit", "decisions", "intervals"):
        for agent in ("a", "b"):
            table(root, name, agent)
    (root / "report.html").write_text("")
    assert cli.main(["status", str(root)]) == 0
    assert "missing" not in capsys.readouterr().out


def driver(root, age=0.0, **more):
    """A progress file as collection writes it, `age` seconds old by the disk's clock."""
    counts = {"cached": 20, "replicas": 2, "replicas_busy": 1, "tokens_per_second": 810.4}
    counts |= {"spend_usd": 0.125}
    path = root / "progress" / "collect.json"
    value = {"stage": "collect", "state": "running", "done": 31, "total": 60, "failed": 3,
             "unit": "episodes", "note": "w/a", "counts": counts, "eta_seconds": 240.0,
             "host": "n7", **more}  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))


def test_a_running_stage_tells_its_numbers(run):
    driver(run[0])
    (first, *_) = status(*run)["stages"]
    assert first["progress"] == (
        "31/60 episodes, 3 failed, 20 from before, 1/2 busy, 810 tokens/s, $0.12, w/a, ETA 4 min"
    )
    assert first["live"][0]["counts"]["replicas_busy"] == 1


def test_a_stage_that_writes_no_more_has_stopped_answering(run):
    driver(run[0], age=50)
    assert "ETA" in status(*run)["stages"][0]["progress"]
    driver(run[0], age=300)
    state = status(*run)
    told = state["stages"][0]["progress"]
    assert "stopped answering 5 min ago on n7" in told
    assert not {"busy", "tokens/s", "ETA"} & set(told.split())
    assert any(told in line for line in lines(state))


def _refused(**_):
    raise PermissionError("read-only")


def test_its_age_is_told_by_the_disk_whatever_this_clock_says(run, monkeypatch):
    driver(run[0])
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert status(*run)["stages"][0]["live"][0]["state"] == "running"
    # A folder that this user cannot write to leaves nothing but the clock.
    monkeypatch.setattr("tempfile.TemporaryFile", _refused)
    assert status(*run)["stages"][0]["live"][0]["state"] == "silent"


def test_a_stage_that_ended_early_is_not_silent(run):
    driver(run[0], age=9999, state="failed")
    assert status(*run)["stages"][0]["progress"].endswith("$0.12, w/a, failed")


def test_what_apis_were_paid_is_told(run):
    assert status(*run)["spent_usd"] is None
    (run[0] / "spend").mkdir()
    (run[0] / "spend" / "a.jsonl").write_text('{"agent": "a", "request": "1", "usd": 1.25}\n')
    assert "  paid to APIs: $1.25" in lines(status(*run))


def test_no_run_there(tmp_path, capsys):
    assert cli.main(["status", str(tmp_path / "none")]) == 2
    assert "is no run directory" in capsys.readouterr().err
