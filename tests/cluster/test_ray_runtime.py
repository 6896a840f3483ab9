from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster import ray_runtime, ray_temp
from cluster.pool import Cluster, open_cluster
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import os, sys, time
from cluster.pool import open_cluster
with open_cluster("local", 1, 0, os.environ.get("ADDRESS"), object_store_mb=100) as cluster:
    import math
    assert dict(cluster.map("sqrt", math.sqrt, [4.0])) == {4.0: 2.0}
    print(cluster.session.temp_dir, cluster.session.address, flush=True)
    if sys.argv[1] == "hang":
        time.sleep(120)
"""


def processes_of(temp_dir: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if temp_dir.encode() in command + environment:
                found.append(int(entry.name))
    return found


def wait_gone(temp_dir: str, seconds: float = 20.0) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := processes_of(temp_dir)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def driver(mode: str, **env: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, mode],
        env={**kept, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_session_is_private_small_and_needs_a_token(ray_cluster: Cluster) -> None:
    import ray

    session = ray_cluster.session
    assert session.temp_dir is not None
    assert len(str(session.temp_dir)) <= ray_temp.MAX_TEMP
    assert session.dashboard_url is None
    resources = ray.cluster_resources()
    assert resources["CPU"] == 2
    assert resources["object_store_memory"] == 200 * 2**20
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    code = f"from ray._raylet import GcsClient; GcsClient(address={session.address!r})"
    stranger = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert stranger.returncode != 0
    assert "oken" in stranger.stderr


def test_a_second_opening_in_one_process_shares_the_first(ray_cluster: Cluster) -> None:
    with open_cluster("local", cpus=1) as inner:
        assert inner.session is ray_cluster.session
    import ray

    assert ray.is_initialized()


@pytest.mark.slow
def test_nothing_is_left_behind_and_no_other_cluster_is_joined(ray_cluster: Cluster) -> None:
    # RAY_ADDRESS names the session's cluster: a run that did not ask for it starts its own.
    process = driver("end", RAY_ADDRESS=ray_cluster.session.address)
    out, _ = process.communicate(timeout=120)
    temp_dir, address = out.split()
    assert process.returncode == 0
    assert address != ray_cluster.session.address
    assert wait_gone(temp_dir) == []
    assert not Path(temp_dir).exists()


@pytest.mark.slow
def test_a_killed_driver_takes_its_ray_along_and_the_next_sweeps_up() -> None:
    process = driver("hang")
    assert process.stdout is not None
    temp_dir = process.stdout.readline().split()[0]
    assert processes_of(temp_dir)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert wait_gone(temp_dir) == []
    assert Path(temp_dir).exists()
    assert Path(temp_dir) in ray_temp.sweep_leftovers(Path(temp_dir).parent)
    assert not Path(temp_dir).exists()


def test_cpus_are_those_of_the_allocation(tmp_path: Path) -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from cluster.ray_runtime import available_cpus; print(available_cpus())"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr
    quota = tmp_path / "cpu.max"
    for text, cpus in (("250000 100000\n", 2), ("max 100000\n", 2**16), ("", 2**16)):
        quota.write_text(text)
        assert ray_runtime._quota(quota) == cpus
    assert ray_runtime._quota(tmp_path / "none") == 2**16


def test_a_ray_is_joined_only_where_it_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ray_runtime.ADDRESS_ENV, ray_runtime.RAY_JOB_ENV, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    named = ray_runtime.named_address
    assert named() is None
    with pytest.raises(UserError, match="no Ray is named"):
        named("auto")
    monkeypatch.setenv("RAY_ADDRESS", "stranger:1")
    assert named() is None
    assert named("auto") == "stranger:1"  # asked for
    monkeypatch.setenv(ray_runtime.RAY_JOB_ENV, "{}")
    assert named() == "stranger:1"  # Ray's job runner set it for us
    monkeypatch.setenv(ray_runtime.ADDRESS_ENV, "ours:1")
    assert named() == named("auto") == "ours:1"
    assert named("other:1") == "other:1"


@pytest.mark.parametrize("address", ["ray://host:10001", "http://host:8265"])
def test_an_address_that_no_driver_can_join_is_told(address: str) -> None:
    done = driver("end", ADDRESS=address)
    _, err = done.communicate(timeout=120)
    assert done.returncode == 1
    assert "ray job submit" in err
    assert "UserError" in err


def test_a_cluster_whose_workers_have_other_code_is_refused(
    ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_runtime._check_workers()
    monkeypatch.setattr(ray_runtime, "__file__", "/elsewhere/cluster/ray_runtime.py")
    with pytest.raises(UserError, match="import another sentinel"):
        ray_runtime._check_workers()


def test_the_dashboard_is_told_with_its_token_and_a_tunnel() -> None:
    lines = ray_runtime.dashboard_lines(8300, "/tmp/sr1_x/token", "n7")
    text = "\n".join(lines)
    assert "http://127.0.0.1:8300 on n7" in text
    assert "/tmp/sr1_x/token" in text
    assert "ssh -L 8265:127.0.0.1:8300 n7" in text


@pytest.mark.slow
def test_two_at_once_neither_meet_nor_end_each_other() -> None:
    first, second = driver("hang"), driver("hang")
    assert first.stdout is not None
    assert second.stdout is not None
    one, two = first.stdout.readline().split(), second.stdout.readline().split()
    assert one[0] != two[0]
    assert one[1] != two[1]
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert wait_gone(one[0]) == []
    assert not Path(one[0]).exists()
    assert processes_of(two[0])
    assert second.poll() is None
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=60)
    assert wait_gone(two[0]) == []
