"""The lab itself: two real nodes, two labs at once, a dead one cleared, nothing else touched."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from slurm_lab import LAB, NoLab, config_file, node_tmp, running_lab

RECORDS = Path("/run/sentinel-slurm-lab")


def out(*command: str, conf: Path | None = None) -> str:
    env = {**os.environ, **({"SLURM_CONF": str(conf)} if conf else {})}
    return subprocess.run(
        command, env=env, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def running(pid: int) -> bool:
    """Whether a process of that number works (one that nobody has waited for yet does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def record(lab: Path) -> Path:
    return next(
        p for p in RECORDS.iterdir() if p.is_file() and str(lab) in p.read_text().split("\n")[1:2]
    )


@pytest.mark.slurm
def test_nodes_have_their_own_name_tmp_and_gpus_and_share_the_rest(
    slurm: Path, tmp_path: Path
) -> None:
    (tmp_path / "shared").write_text("seen")
    script = f"hostname; touch /tmp/mine-$(hostname); cat {tmp_path}/shared; echo"
    lines = out("srun", "-N2", "--gres=gpu:1", "bash", "-c", script).split()
    assert sorted(lines) == ["n1", "n2", "seen", "seen"]
    assert (node_tmp(slurm, "n1") / "mine-n1").exists()
    assert not (node_tmp(slurm, "n1") / "mine-n2").exists()
    assert not Path("/tmp/mine-n1").exists()
    gpus = out("srun", "--gres=gpu:2", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert gpus.strip() == "0,1"
    for _ in range(50):  # accounting hears of a job's end a moment later
        if "COMPLETED" in (told := out("sacct", "-n", "-X", "-P", "--format=partition,state")):
            break
        time.sleep(0.2)
    assert "debug|COMPLETED" in told


@pytest.mark.slurm
def test_a_second_lab_runs_beside_and_its_end_leaves_the_first(slurm: Path) -> None:
    with running_lab(arguments=("--no-accounting", "--nodes", "1")) as second:
        assert out("srun", "hostname", conf=config_file(second)) == "n1\n"
        assert record(second) != record(slurm)
    assert out("srun", "-N1", "hostname").startswith("n")
    assert out("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D") == "2\n"


@pytest.mark.slurm
def test_what_a_dead_lab_left_is_cleared_and_a_reused_pid_is_not_touched(slurm: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        with running_lab(arguments=("--no-accounting", "--nodes", "1")) as lab:
            book = record(lab)
            pids = {
                line.split()[0]: int(line.split()[1]) for line in book.read_text().splitlines()[2:]
            }
            os.kill(pids["slurmctld"], signal.SIGKILL)
            # A later process got a recorded pid: same number, another start time.
            with book.open("a") as file:
                file.write(f"munged {bystander.pid} 1\n")
            done = subprocess.run(
                [str(LAB / "start"), "--lab", str(lab), "--no-accounting", "--nodes", "1"],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert done.stdout.endswith(f"export SLURM_CONF={config_file(lab)}\n")
            assert not running(pids["munged"])
            assert bystander.poll() is None
            again = subprocess.run(
                [str(LAB / "start"), "--lab", str(lab)], capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            assert again.returncode == 1
            assert "runs already" in again.stderr
            name = book.name
        assert name not in out("ip", "netns", "list")
        assert name not in out("ip", "-br", "link")
    finally:
        bystander.kill()
        bystander.wait()


def test_without_slurm_the_lab_says_so_in_one_line(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "realpath", "sha256sum", "cut", "dirname", "id"):
        found = next(p for d in ("/usr/bin", "/bin") if (p := Path(d) / name).exists())
        (tools / name).symlink_to(found)
    done = subprocess.run(
        [str(LAB / "start"), "--lab", str(tmp_path / "lab")],
        env={"PATH": str(tools)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no Slurm lab here: " in done.stderr


def test_no_lab_is_a_reason_to_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fake = tmp_path / "lab"
    fake.mkdir()
    (fake / "start").write_text("#!/bin/sh\necho 'no Slurm lab here: it needs root' >&2\nexit 4\n")
    (fake / "start").chmod(0o755)
    (fake / "stop").symlink_to("/bin/true")
    monkeypatch.setattr("slurm_lab.LAB", fake)
    with pytest.raises(NoLab, match="it needs root"), running_lab():
        pass
