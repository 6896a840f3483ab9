"""One Ray per allocation, on the throw-away Slurm: each node has its own network and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab import node_tmp

from cluster.ports import Ports

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parents[2]
RANK = str(ROOT / "tests" / "support" / "allocation_rank.py")
WORK = ["-c", "import allocation_work; allocation_work.work()"]
HOLD = ["-c", "import allocation_work; allocation_work.hold()"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("RAY_", "SENTINEL_RAY"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'tests' / 'support'}")


class Job:
    """A batch job with one rank per node, and what it printed."""

    def __init__(self, folder: Path, *options: str, command: list[str], bad_rank: int = -1) -> None:
        self.folder = folder
        folder.mkdir()
        words = ["srun", "--ntasks-per-node=1", sys.executable, RANK, str(folder), str(bad_rank)]
        script = "#!/bin/sh\nexec " + " ".join(f"'{w}'" for w in [*words, *command]) + "\n"
        limits = [
            "--parsable",
            "--cpus-per-task=1",
            "--ntasks-per-node=1",
            "--mem=2000",
            "--time=5",
        ]
        done = subprocess.run(
            ["sbatch", *limits, f"--output={folder / 'out'}", *options],
            input=script,
            env={**os.environ, "SRUN_CPUS_PER_TASK": "1"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.id = done.stdout.strip()

    @property
    def out(self) -> str:
        path = self.folder / "out"
        return path.read_text() if path.exists() else ""

    def line(self, word: str, seconds: float = 240) -> str:
        """The rest of the first line that begins with a word, when it has been printed."""
        deadline = time.monotonic() + seconds
        while True:
            for line in self.out.splitlines(keepends=True):
                if line.startswith(word) and line.endswith("\n"):
                    return line.removeprefix(word).strip()
            assert time.monotonic() < deadline, self.out
            assert self.state() in ("PENDING", "RUNNING", "CONFIGURING"), self.out
            time.sleep(0.2)

    def state(self) -> str:
        done = subprocess.run(
            ["scontrol", "show", "job", "-o", self.id], capture_output=True, text=True, check=False
        )
        return done.stdout.partition("JobState=")[2].partition(" ")[0]

    def wait(self, seconds: float = 240) -> str:
        """The state in which it ended."""
        deadline = time.monotonic() + seconds
        while (state := self.state()) in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.monotonic() < deadline, self.out
            time.sleep(0.2)
        return state

    def signal(self, *words: str) -> None:
        subprocess.run(["scancel", *words, self.id], check=True)

    def processes(self) -> list[int]:
        """Processes of any node that carry this job's number in their environment."""
        found = []
        mine = {f"SLURM_JOB_ID={self.id}", f"SLURM_CONF={os.environ['SLURM_CONF']}"}
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if mine <= set(environment.decode("utf-8", "replace").split("\0")):
                found.append(int(entry.name))
        return found

    def left(self, seconds: float = 10) -> list[int]:
        deadline = time.monotonic() + seconds
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found


def temp_dirs(lab: Path) -> list[str]:
    return [p.name for n in ("n1", "n2") for p in node_tmp(lab, n).glob("sr*")]


def taken(node: str, base: int) -> list[int]:
    """Ports of a run on which someone listens on a node."""
    code = f"from cluster.ports import Ports; print(Ports({base}, 128).taken())"
    done = subprocess.run(
        ["srun", "-w", node, "-N1", "-n1", "--mem=100", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.fixture
def busy_gpu(slurm: Path) -> Iterator[None]:
    """Someone else holds the first GPU of n1."""
    words = ["sbatch", "--parsable", "-w", "n1", "--gres=gpu:1", "--mem=100", "--output=/dev/null"]
    done = subprocess.run([*words, "--wrap=sleep 600"], capture_output=True, text=True, check=True)
    number = done.stdout.strip()
    state = ""
    while "JobState=RUNNING" not in state:
        time.sleep(0.2)
        words = ["scontrol", "show", "job", "-o", number]
        state = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    yield
    subprocess.run(["scancel", number], check=True)


@pytest.mark.usefixtures("busy_gpu")
def test_two_nodes_form_one_ray_with_the_devices_that_slurm_gave(
    slurm: Path, tmp_path: Path
) -> None:
    job = Job(tmp_path / "job", "-N2", "--gres=gpu:1", command=WORK)
    found = json.loads(job.line("RESULT"))
    assert job.wait() == "COMPLETED"
    assert (found["cpus"], found["gpus"]) == (2, 2)  # of the allocation: the machines have more
    devices = {(t["host"], t["visible"]) for t in found["tasks"]}
    assert devices == {("n1", "1"), ("n2", "0")}
    assert all(t["ids"] == [t["visible"]] for t in found["tasks"])
    assert sorted(t["item"] for t in found["tasks"]) == list(range(6))
    # One engine over both machines: a worker per device, each beside its own.
    assert {(w["host"], w["visible"]) for w in found["span"]} == devices
    assert job.left() == []
    assert temp_dirs(slurm) == []
    assert not list(job.folder.glob("*head.json"))  # it held the token


@pytest.mark.parametrize(("nodes", "bad"), [(1, 0), (2, 1)])
def test_a_ray_that_does_not_start_fails_the_job_with_its_log(
    slurm: Path, tmp_path: Path, nodes: int, bad: int
) -> None:
    job = Job(tmp_path / "job", f"-N{nodes}", command=WORK, bad_rank=bad)
    assert job.wait() == "FAILED"
    lines = [x for x in job.out.splitlines() if x.startswith("rank ")]
    assert len(lines) >= 1, job.out
    for line in lines:
        assert "Ray ended on n" in line
        assert "The plasma directory file /nowhere does not exist" in line
    assert "RESULT" not in job.out
    assert job.left() == []
    assert temp_dirs(slurm) == []


def test_two_jobs_share_a_node_and_a_cancelled_one_leaves_nothing(
    slurm: Path, tmp_path: Path
) -> None:
    jobs, bases = [], []
    for name in ("one", "two"):  # one after the other: two starts at once are slow on two cores
        jobs.append(Job(tmp_path / name, "-N1", "-w", "n1", command=HOLD))
        bases.append(int(jobs[-1].line("HOLDS").rpartition(":")[2]))
    assert bases[0] != bases[1]
    assert len(temp_dirs(slurm)) == 2
    assert Ports(bases[0], 128).gcs in taken("n1", bases[0])
    jobs[0].signal()
    assert jobs[0].wait() == "CANCELLED"
    assert jobs[0].left() == []
    assert len(temp_dirs(slurm)) == 1
    assert taken("n1", bases[0]) == []
    # The other never noticed.
    assert jobs[1].state() == "RUNNING"
    assert taken("n1", bases[1])
    jobs[1].signal("--signal=USR2")  # a warning reaches the command, and spares Ray's daemons
    assert jobs[1].wait() == "FAILED"
    assert jobs[1].left() == []
    assert temp_dirs(slurm) == []
    assert json.loads(next(jobs[1].folder.glob("*end.json")).read_text())["code"] == 12
