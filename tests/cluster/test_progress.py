from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from cluster import files
from cluster.progress import Progress, duration, read_progress
from cluster.run_dir import RunDir


def test_lines_in_a_log_and_a_file_for_status(tmp_path: Path) -> None:
    run, out = RunDir(tmp_path), io.StringIO()
    with Progress("collect", 4, done=1, unit="episodes", run_dir=run, stream=out,
                  line_seconds=0.0) as progress:  # fmt: skip
        progress.note = "2 workers"
        progress.advance()
        progress.advance(failed=1)
        state = files.read_json(run.progress_path("collect"))
        assert state is not None
        assert state["state"] == "running"
        progress.advance()
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("collect: 2/4 episodes, 2 workers, ETA ")
    assert lines[-1].startswith("collect: 4/4 episodes, 1 failed, 2 workers, took ")
    (state,) = read_progress(run)
    assert (state["state"], state["done"], state["total"], state["failed"]) == ("done", 4, 4, 1)


def test_the_file_is_written_while_nothing_finishes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("cluster.progress.BEAT_SECONDS", 0.05)
    monkeypatch.setattr("cluster.progress.FILE_SECONDS", 0.0)
    run = RunDir(tmp_path)
    with Progress("heads", 2, run_dir=run, stream=io.StringIO()):
        (before,) = read_progress(run)
        deadline = time.monotonic() + 20
        while read_progress(run)[0]["at"] == before["at"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert read_progress(run)[0]["at"] > before["at"]
    assert read_progress(run)[0]["state"] == "done"


def test_a_quiet_log_between_lines(tmp_path: Path) -> None:
    out = io.StringIO()
    with Progress("label", 1000, stream=out) as progress:
        for _ in range(1000):
            progress.advance()
    assert len(out.getvalue().splitlines()) == 1


def test_a_failed_stage_says_so(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with pytest.raises(RuntimeError), Progress("x", 2, run_dir=run, stream=io.StringIO()):
        raise RuntimeError
    assert read_progress(run)[0]["state"] == "failed"


def test_a_bar_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with Progress("heads", 3, stream=out) as progress:
        progress.advance(3)
    assert "heads: 3/3 items" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "3 s"), (240, "4 min"), (5400, "1.5 h"), (0, "0 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
