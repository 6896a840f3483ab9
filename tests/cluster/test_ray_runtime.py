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

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import sys, time
from cluster.pool import open_cluster
with open_cluster("local", cpus=1, object_store_mb=100) as cluster:
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
        text=True,
    )


def test_the_session_is_private_small_and_needs_a_token(ray_cluster: Cluster) -> None:
    import ray

    session = ray_cluster.session
    assert session.temp_dir is not None
    assert len(str(session.temp_dir)) <= ray_runtime.MAX_TEMP
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
    process.stdout.close()
    assert wait_gone(temp_dir) == []
    assert Path(temp_dir).exists()
    assert Path(temp_dir) in ray_temp.sweep_leftovers(Path(temp_dir).parent)
    assert not Path(temp_dir).exists()


def test_only_dead_folders_of_ours_are_swept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = [f"sr{dead.pid}_abc", f"sr{os.getpid()}_abc", "srx_abc", f"sr{dead.pid}", "other"]
    for name in names:
        (tmp_path / name).mkdir()
    assert [p.name for p in ray_temp.sweep_leftovers(tmp_path)] == names[:1]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names[1:])


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


def test_a_long_temp_root_is_replaced(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    made = ray_runtime._temp_dir(deep)
    try:
        assert len(str(made)) <= ray_runtime.MAX_TEMP
    finally:
        made.rmdir()
