from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import forward as module
from cluster.forward import Forward, end_group, exit_code
from cluster.tied import tied

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
CATCHES = (
    "import signal, sys, time\n"
    "for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):\n"
    "    signal.signal(s, lambda n, f: sys.exit(n))\n"
    "open(sys.argv[1], 'w').close()\n"
    "time.sleep(60)\n"
)


@contextmanager
def handled(number: signal.Signals) -> Iterator[list[int]]:
    """A handler as submitit has one, and what it heard."""
    heard: list[int] = []
    before = signal.signal(number, lambda n, f: heard.append(n))
    try:
        yield heard
    finally:
        signal.signal(number, before)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not lives(pid)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT"])
def test_a_signal_is_told_on_and_then_to_the_earlier_handler(name: str, tmp_path: Path) -> None:
    number = signal.Signals[name]
    with handled(number) as heard:
        with Forward() as forward:
            child = forward.start([sys.executable, "-c", CATCHES, str(tmp_path / "up")], os.environ)
            assert os.getpgid(child.pid) == child.pid
            wait_for(tmp_path / "up")
            os.kill(os.getpid(), number)
            assert child.wait(20) == number
            assert forward.received == number
            assert not forward.overdue
            assert heard == []
        forward.pass_on()
        assert heard == [number]
        os.kill(os.getpid(), number)
        assert heard == [number, number]  # its handler is back


def test_one_that_does_not_end_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.2)
    with handled(signal.SIGTERM), Forward() as forward:
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.3)
        assert not forward.overdue  # a warning leaves longer
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        assert forward.received == signal.SIGTERM
        assert forward.overdue


def test_a_signal_before_the_start_reaches_the_command() -> None:
    with handled(signal.SIGTERM), Forward() as forward:
        os.kill(os.getpid(), signal.SIGTERM)
        child = forward.start([sys.executable, "-c", SLEEP], os.environ)
        assert child.wait(20) == -signal.SIGTERM
        assert exit_code(child.returncode) == 128 + signal.SIGTERM


def test_the_group_ends_with_its_leader_gone() -> None:
    code = (
        "import subprocess, sys\n"
        "sub = subprocess.Popen([sys.executable, '-c', "
        "'import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True);"
        "time.sleep(60)'], stdout=subprocess.PIPE)\n"
        "sub.stdout.readline(); print(sub.pid, flush=True)\n"
    )
    leader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, process_group=0)
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline())
    leader.wait()
    leader.stdout.close()
    assert lives(orphan)
    end_group(leader, seconds=0.5)
    assert gone(orphan)


def test_a_command_ends_with_the_process_that_tied_it(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "from cluster.tied import tied\n"
        "sub = subprocess.Popen(tied(sys.argv[1:]), stdout=subprocess.PIPE)\n"
        "sub.stdout.readline(); print(sub.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", code, sys.executable, "-c", SLEEP]
    done = subprocess.run(command, env={"PYTHONPATH": root}, capture_output=True, text=True)
    assert done.returncode == -9
    assert gone(int(done.stdout))


def test_a_deaf_command_is_not_ended_by_a_warning() -> None:
    child = subprocess.Popen(
        tied([sys.executable, "-c", SLEEP], deaf=True), stdout=subprocess.PIPE, process_group=0
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGUSR2)
    child.send_signal(signal.SIGUSR1)
    time.sleep(0.2)
    assert child.poll() is None
    end_group(child)
    child.stdout.close()


def test_a_command_that_is_not_there() -> None:
    done = subprocess.run(tied(["/no/such/command"]), capture_output=True, text=True)
    assert done.returncode == 127
    assert done.stderr == "/no/such/command: No such file or directory\n"
