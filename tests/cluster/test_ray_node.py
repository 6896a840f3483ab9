from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import ray_node
from cluster.allocation_env import Allocation
from cluster.ports import Ports
from cluster.ray_node import MARK, NodePlan, NodeProcess, cleaned, marked, tail

PLAN = NodePlan(
    allocation=Allocation("123", "123-0-0-1", 0, 2, ("n1", "n2"), 3, 2, 4000),
    ports=Ports(20000, 128),
    ip="10.0.0.1",
    temp_dir=Path("/tmp/sr123_abcdefgh"),
    token="secret",
    object_store_mb=500,
)
SLEEP = "import time; time.sleep(60)"


def options(plan: NodePlan) -> dict[str, str]:
    words = (w.removeprefix("--") for w in plan.command()[4:])
    return dict(w.split("=", 1) if "=" in w else (w, "") for w in words)


def test_nothing_is_left_for_ray_to_guess() -> None:
    head = options(PLAN)
    assert head["num-cpus"] == "3"
    assert head["num-gpus"] == "2"
    assert int(head["memory"]) == 3500 * 2**20
    assert int(head["object-store-memory"]) == 500 * 2**20
    assert head["temp-dir"] == "/tmp/sr123_abcdefgh"
    assert head["node-ip-address"] == "10.0.0.1"
    assert head["port"] == "20000"
    assert head["dashboard-host"] == "127.0.0.1"
    assert head["include-dashboard"] == "false"
    assert {"head", "block", "disable-usage-stats"} <= set(head)
    assert "address" not in head
    from ray.scripts.scripts import start

    names = {p.name.replace("_", "-") for p in start.params}
    assert set(head) <= names
    ports = {name for name in names if name.endswith("-port")}
    assert ports
    assert ports <= set(head)  # every port that Ray knows


def test_a_worker_joins_the_head() -> None:
    worker = options(replace(PLAN, head_address="10.0.0.9:21000"))
    assert worker["address"] == "10.0.0.9:21000"
    assert not {"head", "port", "dashboard-port"} & set(worker)
    assert replace(PLAN, head_address="10.0.0.9:21000").address == "10.0.0.9:21000"
    assert PLAN.address == "10.0.0.1:20000"


def test_the_token_is_no_argument_and_no_one_elses_ray_is_named() -> None:
    env = {"RAY_ADDRESS": "x:1", "RAY_AUTH_TOKEN": "old", "RAY_memory_usage_threshold": "0.9"}
    found = PLAN.environment(env, "m")
    assert not any("secret" in word for word in PLAN.command())
    assert found["RAY_AUTH_MODE"] == "token"
    assert found["RAY_AUTH_TOKEN"] == "secret"
    assert "RAY_ADDRESS" not in found
    assert found["RAY_memory_usage_threshold"] == "0.9"  # a setting of the user's
    assert found[MARK] == "m"
    assert "CUDA_VISIBLE_DEVICES" not in found
    assert cleaned({"CUDA_VISIBLE_DEVICES": "0,1"}, gpus=0)["CUDA_VISIBLE_DEVICES"] == ""
    assert cleaned({"CUDA_VISIBLE_DEVICES": "2"}, gpus=1)["CUDA_VISIBLE_DEVICES"] == "2"


@pytest.mark.parametrize("sleeper", ["ours", "orphan"])
def test_the_end_takes_what_was_started_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: str
) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP], env={MARK: "someone else's"})
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}])"
    code += f"; {SLEEP}" if sleeper == "ours" else ""
    monkeypatch.setattr(NodePlan, "command", lambda self: [sys.executable, "-c", code])
    node = NodeProcess(PLAN, tmp_path / "ray.log")
    count = 2 if sleeper == "ours" else 1
    for _ in range(200):
        if len(marked(node.mark)) == count and node.ended() == (sleeper == "orphan"):
            break
        time.sleep(0.05)
    assert len(marked(node.mark)) == count
    node.stop()
    assert marked(node.mark) == []
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_process_whose_environment_is_gone_is_ended_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray's agents write their titles over it, and outlive the daemon that started them."""
    child = f"import os, sys; os.execve(sys.executable, [sys.executable, '-c', {SLEEP!r}], {{}})"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])"
    monkeypatch.setattr(NodePlan, "command", lambda self: [sys.executable, "-c", code])
    node = NodeProcess(PLAN, tmp_path / "ray.log")
    for _ in range(200):
        if node.ended() and len(node.running()) == 1 and not marked(node.mark):
            break
        time.sleep(0.05)
    (left,) = node.running()
    node.stop()
    assert not left.is_running()


def test_a_failing_start_is_told_by_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "ray.log"
    log.write_text("error of an earlier life\n")
    code = "import sys; print('fine'); sys.exit('Error: no such disk')"
    monkeypatch.setattr(NodePlan, "command", lambda self: [sys.executable, "-c", code])
    node = NodeProcess(PLAN, log)
    node.process.wait()
    assert node.ended()
    assert node.cause() == "ray start ended with exit code 1: Error: no such disk"
    node.stop()


def test_the_tail_is_one_short_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "no log" in tail(log)
    log.write_text("")
    assert tail(log) == "its log is empty"
    log.write_bytes(b"Traceback\n  raise ValueError(\nValueError: \xff\tbad\nbye\n")
    assert tail(log) == "ValueError: � bad"
    log.write_text("\n".join(f"line {i}" for i in range(10**4)))
    assert tail(log) == "line 9997 | line 9998 | line 9999"


def test_gpus_of_the_plan_reach_ray_as_slurm_numbered_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert PLAN.environment(os.environ, "m")["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert ray_node.object_store(100, 500) == 80
