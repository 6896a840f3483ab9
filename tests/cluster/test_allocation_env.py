from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster import allocation_env
from cluster.allocation_env import (
    Allocation,
    address_of,
    address_towards,
    gpu_ids,
    head_address,
    hostnames,
    object_store,
    writable,
)
from sentinel.errors import UserError

STEP = {
    "SLURM_JOB_ID": "123",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_LAUNCHER_PORT": "4711",
    "SLURM_PROCID": "1",
    "SLURM_CPUS_PER_TASK": "1",
    "SLURM_CPUS_ON_NODE": "64",
    "SLURM_MEM_PER_NODE": "2000",
    "SLURM_STEP_GPUS": "2,3",
    "CUDA_VISIBLE_DEVICES": "0,1",
}


def test_a_step_is_read_from_its_environment() -> None:
    share = Allocation.from_env(STEP)
    assert share == Allocation("123", "123-0-0-4711", 1, 2, ("n1", "n2"), 1, 2, 2000)


def test_every_life_has_its_own_name() -> None:
    lives = [
        Allocation.from_env({**STEP, **change}).life
        for change in (
            {},
            {"SLURM_RESTART_COUNT": "1"},
            {"SLURM_STEP_ID": "1"},
            {"SLURM_STEP_LAUNCHER_PORT": "4712"},  # the same number in another Slurm
            {"SLURM_JOB_ID": "124"},
        )
    ]
    assert len(set(lives)) == len(lives)
    # It is the same on every rank.
    assert Allocation.from_env({**STEP, "SLURM_PROCID": "0"}).life == lives[0]


def test_a_batch_script_without_srun_is_one_rank() -> None:
    env = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"}
    share = Allocation.from_env(env)
    assert (share.rank, share.ranks, share.cpus, share.gpus) == (0, 1, 1, 0)


def test_what_was_not_allocated_is_refused() -> None:
    with pytest.raises(UserError, match="no Slurm job"):
        Allocation.from_env({})
    with pytest.raises(UserError, match="one task per node"):
        Allocation.from_env({**STEP, "SLURM_STEP_NUM_TASKS": "4"})
    with pytest.raises(UserError, match="3 GPUs per node are wanted, Slurm job 123 has 2"):
        Allocation.from_env(STEP, gpus=3)
    with pytest.raises(UserError, match="8 CPUs"):
        Allocation.from_env(STEP, cpus=8)
    assert Allocation.from_env(STEP, gpus=1, memory_mb=700).memory_mb == 700


def test_cpus_are_never_more_than_the_process_may_run_on() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from cluster.allocation_env import allocated_cpus;"
        "print(allocated_cpus({'SLURM_CPUS_ON_NODE': '64'}))"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": root}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize(
    ("env", "ids"),
    [
        ({"SLURM_STEP_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}, ["0", "1"]),
        ({"SLURM_JOB_GPUS": "4-6"}, ["4", "5", "6"]),
        ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "GPU-1a-2b"}, ["GPU-1a-2b"]),
        ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""}, []),
        ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, []),  # of the shell that submitted
        ({}, []),
    ],
)
def test_gpus_are_those_that_slurm_gave(env: dict[str, str], ids: list[str]) -> None:
    assert gpu_ids(env) == ids


def test_memory_is_the_jobs() -> None:
    total = psutil.virtual_memory().total // 2**20
    memory = allocation_env.allocated_memory_mb
    assert memory({"SLURM_MEM_PER_CPU": "100"}, 3) == 300
    assert memory({"SLURM_MEM_PER_GPU": "100", "SLURM_JOB_GPUS": "0,1"}, 3) == 200
    assert memory({"SLURM_MEM_PER_NODE": str(10 * total)}, 1) == total
    # Slurm does not count memory: as large a share as of the CPUs.
    assert memory({}, 1) == total // (os.cpu_count() or 1)
    assert object_store(10_000, 1024) == 1024
    assert object_store(1_000, 1024) == 300
    assert object_store(100, 1024) == 80  # Ray's least


def test_host_lists() -> None:
    assert hostnames("n[1-2,05],login") == ("n1", "n2", "n05", "login")
    assert hostnames("") == ()


def test_addresses_by_route_and_by_interface() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(UserError, match=r"no interface ib7 .*valid: .*lo"):
        address_of("ib7")


def test_the_head_is_reached_by_the_network_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    share = Allocation.from_env(STEP)
    assert head_address(share, "lo") == "127.0.0.1"
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    asked: list[str] = []

    def towards(host: str) -> str:
        asked.append(host)
        if host == "n2":
            return "10.0.0.1"
        raise OSError

    monkeypatch.setattr(allocation_env, "address_towards", towards)
    assert head_address(share) == "10.0.0.1"
    assert asked == ["n2"]  # its own name may stand for loopback
    alone = Allocation.from_env({"SLURM_JOB_ID": "1"})
    assert head_address(alone) == "127.0.0.1"  # no route at all


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert writable(tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        writable(tmp_path / "file" / "folder")
