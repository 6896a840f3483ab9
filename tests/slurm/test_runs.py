"""Runs on the throw-away Slurm: a whole run, a sweep, interruptions, cancelling, refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import student_engine
import yaml
from slurm_lab import node_tmp

from cluster import job_record as record
from cluster.run_dir import RunDir
from jobs import __main__ as cli
from sentinel import tables

ROOT = Path(__file__).parents[2]
SMALL = ["site.cpus=2", "site.memory_mb=1500", "site.dashboard=false", "site.object_store_mb=100"]
PATIENCE = 400.0

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def _shared(slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' engines on the nodes, data in a folder that they see; nothing queued is left."""
    support = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    monkeypatch.setenv("PYTHONPATH", support)
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path.parent / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    subprocess.run(["scancel", "--user=root", "--quiet"], check=True, timeout=60)
    until(lambda: out("squeue", "-h") == "", 60)


def out(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def until(happens: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, out("squeue", "--states=all") if seconds > 60 else ""
        time.sleep(0.3)


def submit(config: Path, root: Path, *more: str, command: str = "run") -> str:
    """Submit, and return the first job's id."""
    argv = [command, str(config), "--run-dir", str(root), "--on", "slurm", *SMALL, *more]
    assert cli.main(argv) in (0, 3)
    return record.read(root)[-1].jobs[0].id


def ended(root: Path) -> dict[str, str]:
    """States of the last submission's jobs, by files alone."""
    return {x.element: x.state for x in record.look(root, record.read(root)[-1], None)}


def test_the_smoke_config_on_two_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two agents at once, each with a Ray over both nodes: so two Rays on each node as well."""
    root = tmp_path / "runs" / "smoke on two nodes"
    submit(ROOT / "configs" / "smoke.yaml", root, "site.stages.collect={nodes: 2, cpus: 2}",
           "--wait")  # fmt: skip
    told = capsys.readouterr().out
    assert set(ended(root).values()) == {"done"}, told
    assert "collect      array of 2: nano-sage, nano-hasty" in told
    assert (root / "report.html").stat().st_size > 10_000
    assert cli.main(["status", str(root)]) == 0
    logs = [p.read_text() for p in record.folder(root).glob("*_log.out")]
    assert sum("Ray of 2 nodes ready" in text for text in logs) == 2
    assert RunDir(root).read("episodes").num_rows == 120
    assert leftovers() == []


def test_a_sweep_of_four_with_one_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump({
        "name": "small",
        "seed": 7,
        "benchmarks": [{**student_engine.CLINIC, "n_questions": 1200}],
        "agents": [{"name": "good", "engine": "custom", "factory": "student_engine:make",
                    "model": "0.8:1200"}],
        "collect": {"limit": 60},
        "heads": {"kind": "tfidf", "folds": 2},
        "bootstrap": {"resamples": 20},
        "sweep": {"label": ["typed", "strict-2022", "judge:nobody:0", "strict-2024"]},
    }))  # fmt: skip
    root = tmp_path / "runs" / "small"
    submit(config, root, "--wait")
    told = capsys.readouterr().out
    jobs = record.read(root)[-1].jobs
    assert [len(j.elements) for j in jobs] == [3, 1]  # the lab takes arrays of three
    bad = "sweep-label=judge~3Anobody~3A0"
    states = ended(root)
    assert {e for e, state in states.items() if state != "done"} == {bad}, told
    assert len([p for p in root.glob("sweep-*") if (p / "report.html").exists()]) == 3
    assert "no label 'judge:nobody:0'" in told
    assert f"log: {record.folder(root)}" in told


@pytest.fixture
def slow_agent(tmp_path: Path) -> tuple[Path, Path]:
    """A config whose agent takes its time, and the switch that makes it quick again."""
    switches = tmp_path / "switches"
    switches.mkdir()
    config = tmp_path / "slow.yaml"
    config.write_text(yaml.safe_dump({
        "name": "slow",
        "seed": 7,
        "benchmarks": [{"name": "clinic", "kind": "clinic"}],
        "agents": [{"name": "scripted", "engine": "custom", "factory": "scripted_replies:make",
                    "model": f"switches:{switches}", "revision": "0.0"}],
        "collect": {"limit": 60, "workers": 1, "concurrency": 2},
        "heads": {"folds": 2},
    }))  # fmt: skip
    return config, switches / "slow-3.0"


def lines(root: Path) -> int:
    """Finished episodes in the journals."""
    return sum(p.read_bytes().count(b"\n") for p in (root / "parts").rglob("*.jsonl"))


def restarts(job: str) -> int:
    return int(out("scontrol", "show", "job", job).partition("Restarts=")[2].split()[0])


def test_preempted_requeued_and_out_of_time_all_end_like_an_undisturbed_run(
    tmp_path: Path, slow_agent: tuple[Path, Path]
) -> None:
    config, slow = slow_agent
    calm, pushed, timed = (tmp_path / "runs" / n for n in ("calm", "pushed", "timed"))
    argv = ["collect", str(config), "--run-dir", str(calm), "--on", "debug"]
    assert cli.main(argv) == 0
    slow.touch()
    try:
        first = submit(config, pushed, "site.partition=low", "site.options={nodelist: n1}",
                       command="collect")  # fmt: skip
        # Warned 30 to 60 seconds before two minutes have passed, and queued again.
        second = submit(config, timed, "site.hours=0.03", "site.ray=false",
                        "site.signal_seconds=30", "site.options={nodelist: n2}",
                        command="collect")  # fmt: skip
        until(lambda: lines(pushed) >= 5)
        subprocess.run(["srun", "--partition=debug", "--nodelist=n1", "--cpus-per-task=4",
                        "--mem=1G", "true"], check=True, timeout=120)  # fmt: skip
        assert restarts(first) == 1
        half = lines(pushed)
        until(lambda: lines(pushed) >= half + 5)  # it goes on, it does not begin again
        subprocess.run(["scontrol", "requeue", first], check=True, timeout=60)
        until(lambda: restarts(second) >= 1 and lines(timed) >= 1)
        # It has done its part; a machine under load needs longer for the rest (unless it is over).
        subprocess.run(["scontrol", "update", f"jobid={second}", "timelimit=20"], check=False,
                       capture_output=True, timeout=60)  # fmt: skip
    finally:
        slow.unlink()
    for root in (pushed, timed):
        until(lambda root=root: set(ended(root).values()) == {"done"})
        for name in ("episodes", "turns", "tasks"):
            assert tables.diff(name, RunDir(calm).read(name), RunDir(root).read(name)) == []
        lives = [p for p in (root / "parts").rglob("*.jsonl") if p.stat().st_size]
        assert len(lives) >= 2
        assert lines(root) == 60  # no finished episode ran again
    assert restarts(first) == 2
    assert leftovers() == []


def test_a_failed_node_costs_what_was_in_flight(
    tmp_path: Path, slow_agent: tuple[Path, Path]
) -> None:
    """Its processes vanish at once, Slurm finds the node down and queues the job again."""
    config, slow = slow_agent
    calm, root = (tmp_path / "runs" / n for n in ("calm", "failed"))
    argv = ["collect", str(config), "--run-dir", str(calm), "--on", "debug"]
    assert cli.main(argv) == 0
    slow.touch()
    job = submit(config, root, "site.nodes=2", command="collect")
    until(lambda: lines(root) >= 5)
    space = space_of("n2")
    nets = {p: Path(f"/proc/{p}/ns/net") for p in processes(job)}
    killed = [p for p, net in nets.items() if net.exists() and str(net.readlink()) == space]
    assert killed
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    down = ["scontrol", "update", "nodename=n2", "state=down", "reason=power"]
    subprocess.run(down, check=True, timeout=60)
    try:
        until(lambda: restarts(job) == 1)
        until(lambda: not processes(job), 60)
        half = lines(root)
        assert 5 <= half < 60
    finally:
        up = ["scontrol", "update", "nodename=n2", "state=resume"]
        subprocess.run(up, check=False, capture_output=True, timeout=60)  # it may be back
        slow.unlink()
    until(lambda: set(ended(root).values()) == {"done"})
    for name in ("episodes", "turns", "tasks"):
        assert tables.diff(name, RunDir(calm).read(name), RunDir(root).read(name)) == []
    assert lines(root) == 60  # no finished episode ran again
    until(lambda: leftovers() == [], 60)  # the other rank leaves a moment later


def space_of(node: str) -> str:
    """The network namespace of a node, as its processes show it."""
    words = ["srun", "-w", node, "-N1", "-n1", "--mem=100", "readlink", "/proc/self/ns/net"]
    return out(*words)


def test_cancelling_leaves_no_process_port_or_folder(
    tmp_path: Path, slow_agent: tuple[Path, Path], slurm: Path
) -> None:
    config, slow = slow_agent
    slow.touch()
    root = tmp_path / "runs" / "cancelled"
    before = {n: ports(slurm, n) for n in ("n1", "n2")}
    job = submit(config, root, "site.nodes=2", command="collect")
    until(lambda: lines(root) >= 2)
    assert len(processes(job)) > 5
    assert any(ports(slurm, n) != before[n] for n in before)
    assert leftovers(slurm)
    subprocess.run(["scancel", job], check=True, timeout=60)
    until(lambda: not processes(job) and out("squeue", "-h") == "", 60)
    assert leftovers(slurm) == []
    until(lambda: {n: ports(slurm, n) for n in before} == before, 30)
    assert cli.main(["status", str(root)]) == 3
    (found,) = record.look(root, record.read(root)[-1], {})
    assert found.state == "failed"


def processes(job: str) -> list[int]:
    """Processes on the nodes that belong to a job, by their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURM_JOB_ID={job}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def ports(lab: Path, node: str) -> set[str]:
    """Ports that someone listens on within a node."""
    (space,) = {s.split()[0] for s in out("ip", "netns", "list").splitlines()
                if s.split()[0].endswith(f"-{node}") and _of(lab, s.split()[0])}  # fmt: skip
    lines = out("ip", "netns", "exec", space, "ss", "-Hltn").splitlines()
    return {line.split()[3] for line in lines}


def _of(lab: Path, space: str) -> bool:
    return space.startswith(f"slab{_record(lab)}-")


def _record(lab: Path) -> str:
    for path in Path("/run/sentinel-slurm-lab").iterdir():
        if path.is_file() and path.read_text().split("\n")[1:2] == [str(lab)]:
            return path.name
    raise AssertionError("the lab has no record")


def leftovers(lab: Path | None = None) -> list[Path]:
    """Temp dirs of Ray on the nodes."""
    lab = lab or Path(os.environ["SLURM_CONF"]).parents[1]
    return [p for n in ("n1", "n2") for p in node_tmp(lab, n).glob("sr[0-9]*")]


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        (["site.partition=dbug"], "no partition 'dbug' on this cluster"),
        (["site.gpus=3"], "collect asks for 3 GPUs per node, a node of partition debug has 2"),
        (["site.account=nobody"], "Slurm would refuse collect (account nobody): Invalid account"),
        ([], "the nodes do not see"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_queued(
    tmp_path: Path, slow_agent: tuple[Path, Path], capsys: pytest.CaptureFixture[str],
    settings: list[str], cause: str,
) -> None:  # fmt: skip
    config, _ = slow_agent
    # /dev/shm is of one machine alone.
    root = tmp_path / "run" if settings else Path(f"/dev/shm/unshared-{os.getpid()}") / "run"
    argv = ["collect", str(config), "--run-dir", str(root), "--on", "slurm", *SMALL, *settings]
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert cause in err
    assert set(out("squeue", "-h", "-o", "%j").split()) <= {"sentinel-probe"}
    subprocess.run(["rm", "-rf", f"/dev/shm/unshared-{os.getpid()}"], check=True)
