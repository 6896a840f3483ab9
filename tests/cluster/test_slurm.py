"""Slurm's answers, banners and silences; what of the environment a submission takes along."""

from __future__ import annotations

import os
from pathlib import Path

import fake_slurm
import pytest

from cluster import slurm
from sentinel.errors import UserError


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("12\n", "12"),
        ("Welcome! Your job 4 limit is 7.\n7\n*** 99 bottles\n123;main-cluster\n", "123"),
        ("Job 5 is great\n  77  \n\n", "77"),
    ],
)
def test_a_banner_does_not_hide_the_job_id(text, id_):
    assert slurm.job_id(text) == id_


def test_no_job_id_is_an_error():
    with pytest.raises(ValueError, match="no job id"):
        slurm.job_id("Submitted batch job, somewhere\n")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0),
        ("gpu:2", 2),
        ("gpu", 1),
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:a100:4(S:0,3),gpu:l4:2,shard:8,nvme:1", 6),
    ],
)
def test_gpus_of_a_node(gres, gpus):
    assert slurm.gpus_of(gres) == gpus


def test_pins_of_an_allocation_around_us_are_left_out(monkeypatch):
    pins = ("SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SBATCH_TIMELIMIT", "SRUN_CPUS_PER_TASK",
            "SLURMD_NODENAME", "RAY_ADDRESS", "SENTINEL_RAY_ADDRESS", "RAY_AUTH_TOKEN",
            "CUDA_VISIBLE_DEVICES")  # fmt: skip
    for name in pins:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/s.conf")
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    monkeypatch.setenv("SBATCH_PARTITION", "theirs")
    found = slurm.environment(sets=["partition"])
    assert not found.keys() & set(pins)
    ours = {k for k in found if k.startswith(("SLURM", "SBATCH", "SRUN"))}
    assert ours == {"SLURM_CONF", "SBATCH_ACCOUNT"}
    assert found["PATH"] == os.environ["PATH"]


def test_no_slurm_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no Slurm on this machine"):
        slurm.require()
    with pytest.raises(UserError, match="no Slurm on this machine"):
        slurm.max_array_size()


def test_a_controller_that_is_silent_is_one_line(tmp_path, monkeypatch):
    fake_slurm.install(tmp_path / "bin", monkeypatch, sinfo="exec sleep 5")
    with pytest.raises(UserError, match=r"no answer within 0\.2 s"):
        slurm.ask(["sinfo"], seconds=0.2)


def test_a_complaint_loses_its_preamble(tmp_path, monkeypatch):
    text = "echo 'motd' >&2; echo 'sinfo: error: no such host' >&2; exit 1"
    fake_slurm.install(tmp_path / "bin", monkeypatch, sinfo=text)
    with pytest.raises(UserError, match="sinfo failed: no such host"):
        slurm.node_kinds()


def test_what_partitions_have(tmp_path, monkeypatch):
    lines = r"motd\ndebug*|up|2|4+|8000|gpu:2\nbig|down|100|64|512000+|gpu:a100:8(S:0-1)\n"
    fake_slurm.install(tmp_path / "bin", monkeypatch, sinfo=f"printf '{lines}'")
    debug, big = slurm.node_kinds()
    assert debug == slurm.NodeKind("debug", True, True, 2, 4, 8000, 2)
    assert big == slurm.NodeKind("big", False, False, 100, 64, 512000, 8)


@pytest.mark.parametrize(("line", "size"), [("MaxArraySize            = 101", 101), ("", 1001)])
def test_the_size_of_an_array(tmp_path, monkeypatch, line, size):
    fake_slurm.install(tmp_path / "bin", monkeypatch, scontrol=f"echo 'x = 3'; echo '{line}'")
    assert slurm.max_array_size() == size


def test_an_old_job_of_the_same_id_is_not_ours(tmp_path, monkeypatch):
    lines = r"\n".join(
        ("motd", "sentinel-old|7|COMPLETED|n1|None", "sentinel-new|9_0|RUNNING|n2|None",
         "sentinel-new|9_1|PENDING||Dependency|x", "|9|RUNNING|n1|None")
    )  # fmt: skip
    fake_slurm.install(tmp_path / "bin", monkeypatch, squeue=f"printf '{lines}\\n'")
    found = slurm.queue("sentinel-new")
    assert sorted(found) == ["9_0", "9_1"]
    assert found["9_1"].reason == "Dependency|x"
    assert not found["9_0"].over
    assert slurm.queue("sentinel-old")["7"].over


def test_cancelling_nothing_asks_nobody(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm.cancel([])
