"""`sentinel pace`: episodes one after the other, timed per step, nothing else kept."""

from __future__ import annotations

from pathlib import Path

import collecting
import pytest

from cluster import files
from cluster.pool import Cluster
from jobs import pace
from jobs.__main__ import main
from jobs.config import RunConfig


def test_time_per_step_of_a_serial_rerun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine sleeps 10 to 30 ms a turn; a collected run is timed and otherwise unchanged."""
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    settings = collecting.config(tmp_path, 0.02, limit=100)
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", Cluster("debug", 1, 0))
    before = sorted(p for p in run_dir.root.rglob("*") if p.is_file())
    hashes = {p: files.file_hash(p) for p in before if p.suffix in (".parquet", ".jsonl")}
    hashes.pop(run_dir.metrics_path)
    assert main(["pace", "--run-dir", str(run_dir.root), "--episodes", "6"]) == 0
    found = files.read_json(pace.pace_path(run_dir, "clinic", "scripted"))
    assert found is not None
    assert 1 <= found["episodes"] <= 6
    assert found["seconds_per_step"] == found["seconds"] / found["steps"]
    assert 0.01 <= found["seconds_per_step"] < 1
    assert pace.seconds_per_step(run_dir, "clinic", "scripted") == found["seconds_per_step"]
    assert pace.seconds_per_step(run_dir, "clinic", "other") is None
    assert "s per step" in capsys.readouterr().out
    assert all(files.file_hash(p) == h for p, h in hashes.items())
    new = {p.name for p in run_dir.root.rglob("*") if p.is_file()} - {p.name for p in before}
    assert new <= {"scripted.json", "run.lock"}


def test_nothing_to_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No run yet, or no episodes asked for: one line, exit code 2."""
    config: RunConfig = collecting.config(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    assert main(["pace", "--run-dir", str(tmp_path), "--episodes", "0"]) == 2
    assert main(["pace", "--run-dir", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
