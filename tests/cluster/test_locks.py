from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cluster.locks import FileLock
from cluster.run_dir import RunDir
from sentinel.errors import UserError

HOLDER = (
    "import sys, time; from cluster.run_dir import RunDir\n"
    "with RunDir(sys.argv[1]).lock():\n    print('held', flush=True); time.sleep(60)\n"
)


def test_a_second_driver_is_refused_and_a_dead_one_is_taken_over(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    holder = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(UserError, match=f"in use by process {holder.pid}") as caught:
        RunDir(tmp_path).lock().__enter__()
    assert str(tmp_path / "locks" / "run.lock") in str(caught.value)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with RunDir(tmp_path).lock():
        assert json.loads((tmp_path / "locks/run.lock").read_text())["pid"] == os.getpid()


def test_a_released_lock_is_free(tmp_path: Path) -> None:
    for _ in range(2):
        with RunDir(tmp_path).lock():
            with pytest.raises(UserError, match="in use"):
                RunDir(tmp_path).lock().__enter__()
            with RunDir(tmp_path).lock("other"):
                pass
    assert (tmp_path / "locks" / "run.lock").read_text() == ""


def test_another_host_keeps_its_lock_while_its_heart_beats(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.1):
            os.utime(path, ns=(time.time_ns(), time.time_ns()))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(UserError, match="process 1 on elsewhere"):
            FileLock(path, "run", patience=5.0).__enter__()
    finally:
        stop.set()
        thread.join()
    with FileLock(path, "run", patience=0.3):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_waiting_for_a_holder_that_leaves(tmp_path):
    path, held = tmp_path / "l.lock", threading.Event()

    def hold() -> None:
        with FileLock(path, what="run"):
            held.set()
            time.sleep(0.5)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(5)
    with pytest.raises(UserError), FileLock(path, what="run"):
        pass
    with FileLock(path, what="run", wait=10):
        pass
    thread.join()


def test_a_job_queued_again_takes_over_from_its_earlier_life_on_another_node(tmp_path, monkeypatch):
    path = tmp_path / "l.lock"
    held = {"pid": 1, "host": "elsewhere", "at": 0.0, "slurm_job": "c/7"}
    path.write_text(json.dumps(held))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "c")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    start = time.monotonic()
    with FileLock(path, what="run", patience=20):
        pass
    assert time.monotonic() - start < 5
    # Another job's holder is listened for.
    path.write_text(json.dumps({**held, "slurm_job": "c/8"}))
    start = time.monotonic()
    with FileLock(path, what="run", patience=0.5):
        pass
    assert time.monotonic() - start >= 0.5
