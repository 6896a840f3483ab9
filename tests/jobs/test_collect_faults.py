"""Faults while agents work: what is finished stays, the rest runs again, causes are named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import collecting
import pytest
from collecting import assert_equal, lines

from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs import status
from jobs.config import RunConfig
from sentinel import tables
from sentinel.errors import UserError

pytestmark = pytest.mark.usefixtures("one_hospital")
ROOT = Path(__file__).resolve().parents[2]
TASKS = 100
"""The fewest that give every pool its kinds of questions."""


@pytest.fixture(scope="module")
def reference(one_hospital: None, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("reference")
    with open_cluster("debug", cpus=1) as cluster:
        return collecting.run(troubled(folder), folder / "runs" / "r", cluster)


def troubled(switches: Path, seconds: float = 0.0, **settings: Any) -> RunConfig:
    raw = collecting.config(switches, seconds, limit=TASKS, **settings).model_dump(mode="json")
    raw["agents"][0]["factory"] = "troubled_replies:make"
    return RunConfig.from_mapping(raw)


def script(name: str, folder: Path, *words: str, command: Sequence[str] = ()) -> str:
    """The last line that a script of `tests/support` prints, run in a process of its own."""
    path = ROOT / "tests" / "support" / name
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    ran = subprocess.run(
        [*command, sys.executable, str(path), str(folder), *words],
        env={**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{path.parent}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


def own_mounts() -> list[str]:
    """The command that gives another one file systems of its own."""
    unshare = shutil.which("unshare")
    command = [unshare or "unshare", "--mount", "--propagation", "private"]
    if unshare is None or os.geteuid() or subprocess.run([*command, "true"]).returncode:
        pytest.skip("a file system of one's own needs root and mount namespaces")
    return command


def life(journal: Path) -> int:
    """Which life of its replica wrote a journal."""
    return int(journal.stem.split("-")[-2])


def causes(run_dir: RunDir, config: RunConfig) -> str:
    state = status.status(run_dir.root, config)
    assert state["stages"][0]["stage"] == "collect"
    return "\n".join(status.lines({**state, "stages": state["stages"][:1]}))


def test_an_engine_that_dies_is_loaded_again(
    debug: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    (switches / "die").write_text("40")
    settings = troubled(switches)
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", debug)
    assert_equal(run_dir, reference)
    assert max(r["attempt"] for r in lines(run_dir)) == 2
    assert set(Counter(r["episode_id"] for r in lines(run_dir)).values()) == {1}
    assert "met: clinic/scripted: the engine died: CUDA error" in causes(run_dir, settings)


def test_a_spent_budget_stops_cleanly_and_a_larger_one_goes_on(
    debug: Cluster,
    switches: Path,
    tmp_path: Path,
    reference: RunDir,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (switches / "stop").write_text("60")
    settings, root = troubled(switches), tmp_path / "runs" / "r"
    run_dir = collecting.run(settings, root, debug)
    kept = len(lines(run_dir))
    assert 0 < kept < TASKS
    assert not run_dir.table_path("episodes", "clinic", "scripted").exists()
    told = [x for x in capsys.readouterr().err.splitlines() if x.startswith("sentinel: ")]
    assert told == [
        f"sentinel: clinic/scripted stopped: the budget of $1.00 is spent; {TASKS - kept} episodes "
        "are left"
    ]
    assert "stopped: the budget of $1.00 is spent" in causes(run_dir, settings)
    (switches / "stop").unlink()
    collecting.run(settings, root, debug)
    assert_equal(run_dir, reference)
    assert len(lines(run_dir)) == TASKS, "finished episodes did not run again"
    assert "stopped" not in causes(run_dir, settings)


def test_one_agent_that_stops_leaves_the_others_alone(
    debug: Cluster, switches: Path, tmp_path: Path
) -> None:
    (switches / "stop").write_text("0")
    raw = troubled(switches).model_dump(mode="json")
    raw["agents"].append(collecting.agent("second", tmp_path, 0.0))
    run_dir = collecting.run(RunConfig.from_mapping(raw), tmp_path / "runs" / "r", debug)
    assert run_dir.read("episodes", "clinic", "second").num_rows == TASKS
    assert lines(run_dir) == []


def test_an_engine_that_hangs_is_named_and_the_run_goes_on_later(
    debug: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    (switches / "hang").write_text("50")
    settings, root = troubled(switches, wedged_seconds=1.5), tmp_path / "runs" / "r"
    with pytest.raises(UserError, match="the engine hangs: no token for"):
        collecting.run(settings, root, debug)
    run_dir = RunDir(root)
    assert 0 < len(lines(run_dir)) < TASKS
    assert "met: clinic/scripted: the engine hangs: no token" in causes(run_dir, settings)
    collecting.run(troubled(switches, wedged_seconds=99.0), root, debug)
    assert_equal(run_dir, reference)


def test_back_pressure_changes_nothing_but_the_pace(
    debug: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    settings = troubled(switches, tokens_in_flight=1)
    assert_equal(collecting.run(settings, tmp_path / "runs" / "r", debug), reference)


def test_hung_and_dying_engines_of_actors_are_started_again(
    ray_cluster: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    (switches / "die").write_text("20")
    (switches / "hang").write_text("30")
    settings = troubled(switches, 0.03, wedged_seconds=3.0)
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", ray_cluster)
    assert_equal(run_dir, reference)
    assert set(Counter(r["episode_id"] for r in lines(run_dir)).values()) == {1}
    found = causes(run_dir, settings)
    assert "the engine died: CUDA error: an illegal memory access" in found
    assert "the engine hangs: no token for" in found


@pytest.mark.slow
def test_a_worker_that_answers_no_more_is_killed_and_started_again(
    ray_cluster: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    """Stopped by a signal, it neither works nor dies, and obeys nobody but SIGKILL."""
    run_dir = RunDir(tmp_path / "runs" / "r")
    settings = troubled(switches, 0.05, wedged_seconds=4.0)
    watcher = collecting.when_finished(
        run_dir, 20, lambda paths: os.kill(collecting.pid_of(paths[0]), signal.SIGSTOP)
    )
    collecting.run(settings, run_dir.root, ray_cluster)
    watcher.join()
    assert_equal(run_dir, reference)
    assert "the worker hangs: no answer for 4 s" in causes(run_dir, settings)


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_its_cause_and_room_lets_it_go_on(
    tmp_path: Path, reference: RunDir
) -> None:
    """A small file system of its own, in a mount namespace that ends with the process."""
    found = json.loads(script("full_disk.py", tmp_path, command=own_mounts()))
    assert found["codes"] == [2, 0]
    (cause,) = [x for x in found["first"].splitlines() if x.startswith("sentinel: ")]
    assert "No space left on device" in cause
    assert "Traceback" not in found["first"]
    assert 0 < found["kept"] < TASKS
    copy = RunDir(tmp_path / "copy")
    assert_equal(copy, reference)
    assert set(Counter(r["episode_id"] for r in lines(copy)).values()) == {1}


@pytest.mark.slow
def test_a_worker_killed_for_memory_is_named_and_gets_less_to_do_at_once(
    tmp_path: Path, reference: RunDir
) -> None:
    """Ray's own monitor kills it; what the monitor reads of the memory is the test's."""
    found = json.loads(script("out_of_memory.py", tmp_path, command=own_mounts()))
    (cause,) = found["causes"]
    assert "clinic/scripted: the worker was killed: the machine ran out of memory" in cause
    run_dir = RunDir(tmp_path / "runs" / "r")
    assert_equal(run_dir, reference)
    written = lines(run_dir)
    assert set(Counter(r["episode_id"] for r in written).values()) == {1}
    assert 1 <= sum(r["attempt"] > 1 for r in written) <= 8, "two workers, four at once each"
    (again, *_) = [p for p in collecting.journals(run_dir, "scripted") if life(p) == 2]
    rows = [json.loads(x) for x in again.read_text().splitlines()]
    fourth = sorted(r["started_at"] + r["seconds"] for r in rows)[3]
    begun = sum(r["started_at"] < fourth for r in rows)
    assert begun <= 3 + 2, "until four have finished, two at once instead of four"


@pytest.mark.slow
def test_a_lost_node_costs_what_its_replica_had_in_flight(
    tmp_path: Path, reference: RunDir
) -> None:
    """Two Ray nodes with a replica each; one is killed with all its processes."""
    found = json.loads(script("two_nodes.py", tmp_path, "lost"))
    assert found["causes"] == ["clinic/scripted: the worker's node is gone"]
    run_dir = RunDir(tmp_path / "runs" / "r")
    assert_equal(run_dir, reference)
    written = lines(run_dir)
    assert set(Counter(r["episode_id"] for r in written).values()) == {1}
    assert 1 <= sum(r["attempt"] == 2 for r in written) <= 4, "the episodes in flight"
    ended = {r["worker"]: r["started_at"] + r["seconds"] for r in written}
    assert len(ended) == 2
    (last,) = {r["worker"] for r in written if r["attempt"] == 2}
    assert ended[last] == max(ended.values()), "they ran again on the node that was left"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_replicas_equal_one_and_each_of_them_works(tmp_path: Path) -> None:
    """The embedded engine in float64: what it says depends on no company."""
    common = ["agents=[nano-hasty]", "site.cpus=4", "collect.limit=60", "collect.concurrency=4"]
    for workers in (1, 4):
        ran = collecting.start(tmp_path / str(workers), *common, f"collect.workers={workers}")
        try:
            assert ran.wait(400) == 0
        finally:
            ran.kill()
            ran.wait()
    one, four = (RunDir(tmp_path / str(w)) for w in (1, 4))
    for name in ("tasks", "episodes", "turns"):
        assert tables.diff(name, four.read(name), one.read(name)) == []
    shares = Counter(four.read("episodes")["worker"].to_pylist())
    assert set(shares) == {f"replica-{i}" for i in range(4)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_chaos_changes_nothing(tmp_path: Path) -> None:
    """300 episodes; a worker of each driver and two drivers get SIGKILL, without a warning."""
    settings = ["agents=[nano-hasty]", "collect.limit=300", "collect.concurrency=8"]
    calm = collecting.start(tmp_path / "calm", *settings, on="debug")
    running, drivers, kills = [calm], 0, 0
    run_dir = RunDir(tmp_path / "chaos")
    driver: subprocess.Popen[bytes] | None = None
    try:
        while True:
            done = collecting.finished(run_dir, "nano-hasty")
            if driver is None:
                driver, begun, spared = collecting.start(run_dir.root, *settings), done, True
                running.append(driver)
                drivers += 1
            if driver.poll() is not None:
                break
            time.sleep(0.01)
            if drivers <= 2 and done - begun >= 80:
                driver.kill()
                driver.wait()
                driver = None
            elif spared and done - begun >= 30:
                killed = collecting.kill_a_worker(run_dir, "nano-hasty")
                kills, spared = kills + killed, not killed
        assert calm.wait(400) == driver.returncode == 0
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert drivers == 3
    assert kills == 3
    for name in ("tasks", "episodes", "turns"):
        left, right = run_dir.read(name), RunDir(tmp_path / "calm").read(name)
        assert tables.diff(name, left, right) == []
    assert run_dir.read("episodes").num_rows == 300
