"""Elements of an array: one agent each, side by side on one run directory; told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from cluster.run_dir import RunDir
from jobs import __main__ as cli
from sentinel.errors import UserError

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    switches = tmp_path / "switches"
    switches.mkdir()
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({
        "name": "small",
        "seed": 7,
        "on": "debug",
        "benchmarks": [{"name": "clinic", "kind": "clinic"}],
        "agents": [
            {"name": name, "engine": "custom", "factory": "scripted_replies:make",
             "model": f"switches:{switches}", "revision": "0.0"}
            for name in ("a", "b")
        ],
        "collect": {"limit": 60, "concurrency": 4},
        "heads": {"folds": 2},
    }))  # fmt: skip
    return path


@contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, gone at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "jobs", *argv],
        env=ENV,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(root: Path) -> int:
    return sum(p.read_bytes().count(b"\n") for p in (root / "parts").rglob("*.jsonl"))


@pytest.mark.slow
def test_two_agents_at_once_make_what_one_driver_makes(tmp_path: Path, config: Path) -> None:
    both, one = tmp_path / "both", tmp_path / "one"
    argv = ["collect", str(config), "--run-dir", str(both), "--agent"]
    with started(*argv, "a") as first, started(*argv, "b") as second:
        for process in (first, second):
            _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
    assert cli.main(["collect", str(config), "--run-dir", str(one)]) == 0
    for name in ("episodes", "turns", "tasks"):
        left, right = RunDir(both).read(name), RunDir(one).read(name)
        assert left.num_rows == right.num_rows > 0
    names = [a["name"] for a in json.loads((both / "config.json").read_text())["agents"]]
    assert names == ["a", "b"]
    told = sorted(p.name for p in (both / "progress").iterdir())
    assert told == ["collect%40a.json", "collect%40b.json"]
    assert (both / "logs" / "collect@a.log").exists()


def test_a_driver_of_the_whole_run_and_an_element_exclude_each_other(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with run.lock_element("collect", "a"):
        with RunDir(tmp_path).lock_element("collect", "b", wait=0):
            pass
        with pytest.raises(UserError), RunDir(tmp_path).lock_element("collect", "a", wait=0):
            pass
        with pytest.raises(UserError, match="in use by process"), RunDir(tmp_path).lock():
            pass
    with RunDir(tmp_path).lock():
        with pytest.raises(UserError), RunDir(tmp_path).lock_element("collect", "a", wait=0):
            pass
        with RunDir(tmp_path).lock("tasks"):
            pass


def test_an_unknown_agent_is_named(tmp_path: Path, config: Path, capsys) -> None:
    assert cli.main(["collect", str(config), "--run-dir", str(tmp_path / "r"), "--agent", "c"]) == 2
    assert "no agent named 'c'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_stage_that_is_told_to_stop_stops_cleanly_and_goes_on_later(
    tmp_path: Path, config: Path, number: signal.Signals
) -> None:
    slow = tmp_path / "switches" / "slow-0.5"
    slow.touch()
    root = tmp_path / "r"
    with started("collect", str(config), "--run-dir", str(root), "--agent", "a") as process:
        deadline = time.monotonic() + PATIENCE
        while not (root / "parts").exists() or lines(root) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        process.send_signal(number)  # Slurm tells every process, and its parent tells it again
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert "the same command goes on from here" in err
    assert "Traceback" not in err
    assert (root / "locks" / "element-collect%40a.lock").read_text() == ""
    half = lines(root)
    slow.unlink()
    assert cli.main(["collect", "--run-dir", str(root), "--agent", "a"]) == 0
    assert lines(root) == 60 > half
