from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster.engines.guard import Guard, kill_tree

ROOT = Path(__file__).resolve().parents[3]
CHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); time.sleep(300)"
OWNER = f"""
import subprocess, sys, time
from cluster.engines.guard import Guard
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
guard = Guard()
guard.watch(child.pid)
guard.watch(child.pid)
time.sleep(0.5)
print(child.pid, flush=True)
time.sleep(300)
"""


def test_a_killed_owner_takes_what_is_watched_with_it() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert owner.stdout is not None
    child = psutil.Process(int(owner.stdout.readline()))
    below = child.children()
    assert [p.name() for p in below] == ["sleep"]
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    _, alive = psutil.wait_procs([child, *below], timeout=20)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_release_kills_what_did_not_end() -> None:
    child = subprocess.Popen(["sleep", "300"])
    guard = Guard()
    guard.watch(child.pid)
    guard.watch(2**22 + 1)  # nobody
    guard.release()
    guard.release()
    assert child.wait(timeout=10) == -signal.SIGKILL


def test_another_process_with_an_old_number_is_left_alone() -> None:
    child = subprocess.Popen(["sleep", "300"])
    kill_tree(child.pid, psutil.Process(child.pid).create_time() - 5)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.2)
    kill_tree(child.pid, psutil.Process(child.pid).create_time())
    assert child.wait(timeout=10) == -signal.SIGKILL
