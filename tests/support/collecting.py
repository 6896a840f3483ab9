"""Small collections with a scripted engine on the embedded hospital; also a driver to be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from cluster import collect_actor, collect_tables
from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs import collect
from jobs.config import RunConfig
from sentinel import tables

ROOT = Path(__file__).resolve().parents[2]


def config(switches: Path, seconds: float = 0.01, **collect_settings: Any) -> RunConfig:
    return RunConfig.from_mapping(
        {
            "name": "t",
            "benchmarks": [{"name": "clinic", "kind": "clinic", "n_questions": 160,
                            "patients": 300}],
            "agents": [agent("scripted", switches, seconds)],
            "collect": {"workers": 2, "concurrency": 4, **collect_settings},
            "heads": {"folds": 2},
        }
    )  # fmt: skip


def agent(name: str, switches: Path, seconds: float = 0.01) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "custom",
        "factory": "scripted_replies:make",
        "model": f"switches:{switches}",
        "revision": str(seconds),
    }


def run(settings: RunConfig, root: Path, cluster: Cluster) -> RunDir:
    run_dir = RunDir(root)
    run_dir.prepare(settings.model_dump(mode="json"))
    with mock.patch.object(collect_actor, "ASSEMBLE_SECONDS", 60.0):  # the machine may be busy
        collect.run(settings, run_dir, cluster)
    return run_dir


def when_finished(
    run_dir: RunDir, n: int, act: Callable[[list[Path]], None], agent: str = "scripted"
) -> threading.Thread:
    """Call `act` with the journals once they hold n episodes."""

    def watch() -> None:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            if finished(run_dir, agent) >= n:
                act(journals(run_dir, agent))
                return
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def journals(run_dir: RunDir, agent: str) -> list[Path]:
    return collect_tables.journal_paths(run_dir, "clinic", agent)


def finished(run_dir: RunDir, agent: str) -> int:
    """Whole lines of the journals."""
    return sum(p.read_bytes().count(b"\n") for p in journals(run_dir, agent))


def lines(run_dir: RunDir, agent: str = "scripted") -> list[dict[str, Any]]:
    """Every whole line of the journals."""
    return [
        json.loads(x) for p in journals(run_dir, agent) for x in p.read_bytes().split(b"\n")[:-1]
    ]


def assert_equal(run_dir: RunDir, reference: RunDir) -> None:
    """The tables of two collections are equal, but for the folder of switches."""
    for name in ("tasks", "episodes", "turns"):
        left, right = run_dir.read(name), reference.read(name)
        if name == "episodes":  # the folder is part of the agent's config
            at = left.column_names.index("agent_hash")
            left = left.set_column(at, "agent_hash", right["agent_hash"])
        assert tables.diff(name, left, right) == []


def pid_of(journal: Path) -> int:
    """The worker that writes a journal."""
    return int(journal.stem.rpartition("-")[2])


def kill_a_worker(run_dir: RunDir, agent: str) -> int:
    """SIGKILL to the worker whose journal is the youngest of those alive; how many were killed."""
    for path in reversed(journals(run_dir, agent)):
        try:
            process = psutil.Process(pid_of(path))
            if "ray::" in process.name() or any("ray::" in w for w in process.cmdline()):
                process.kill()
                return 1
        except psutil.Error:
            continue
    return 0


def start(root: Path, *settings: str, on: str = "local") -> subprocess.Popen[bytes]:
    """`sentinel collect` on the smoke config in a process of its own, with these settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    command = [sys.executable, "-m", "jobs", "collect", str(ROOT / "configs" / "smoke.yaml")]
    overrides = ["site.cpus=2", "site.object_store_mb=100", "benchmarks=[clinic]", *settings]
    options = ["--run-dir", str(root), "--on", on]
    return subprocess.Popen([*command, *overrides, *options], env=env, cwd=ROOT)


if __name__ == "__main__":
    with open_cluster("local", cpus=2, object_store_mb=100) as opened:
        run(config(Path(sys.argv[2]), float(sys.argv[3])), Path(sys.argv[1]), opened)
