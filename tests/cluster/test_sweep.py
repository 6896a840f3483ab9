"""Sweeps on Ray Tune: trials are counted, markers are the truth, nothing done is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sweep_blocks
from sweep_blocks import blocks

from cluster.pool import Cluster
from cluster.run_dir import RunDir
from cluster.sweep import storage, sweep
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
DEBUG = Cluster("debug", 1, 0)


def shared(folder: Path) -> dict[str, Any]:
    (folder / "calls").touch()
    return {"calls": str(folder / "calls"), "values": np.sqrt(np.arange(60.0))}


def calls(folder: Path) -> list[int]:
    return [int(line.split()[0]) for line in (folder / "calls").read_text().splitlines()]


def parts(run_dir: RunDir, name: str = "numbers") -> dict[str, Any]:
    return {i: t.to_pydict() for i, t in run_dir.read_parts("cascade", "cell a", "scorer", name)}


def test_one_trial_per_missing_block_and_bits_as_in_a_loop(ray_cluster: Cluster, tmp_path: Path):
    run_dir, plain = RunDir(tmp_path / "run"), RunDir(tmp_path / "plain")
    data = shared(tmp_path)
    direct = sweep(DEBUG, plain, "cascade", blocks(9), sweep_blocks.square, data)
    assert (len(direct.kept), len(direct.ran), direct.failed) == (0, 9, {})
    assert calls(tmp_path) == list(range(9))
    (tmp_path / "calls").write_text("")

    first = sweep(ray_cluster, run_dir, "cascade", blocks(4), sweep_blocks.square, data)
    assert (len(first.kept), len(first.ran), first.failed) == (0, 4, {})
    assert sorted(calls(tmp_path)) == list(range(4))
    shutil.rmtree(storage(run_dir, "cascade"))
    run_dir.marker_path("cascade", "cell a", "scorer", "seeds-2-2").unlink()
    (tmp_path / "calls").write_text("")

    again = sweep(ray_cluster, run_dir, "cascade", blocks(9), sweep_blocks.square, data)
    assert [b.item for b in again.kept] == ["seeds-0-0", "seeds-1-1", "seeds-3-3"]
    assert sorted(calls(tmp_path)) == [2, *range(4, 9)]
    assert parts(run_dir) == parts(plain)
    # Actors are reused: no more processes than CPUs.
    pids = {line.split()[1] for line in (tmp_path / "calls").read_text().splitlines()}
    assert len(pids) <= ray_cluster.cpus
    # Tune's state lies in the run directory; one folder per trial, named.
    found = [p.name for p in storage(run_dir, "cascade").iterdir() if p.is_dir()]
    assert len(found) == 6
    assert all("seeds-" in name for name in found)

    (tmp_path / "calls").write_text("")
    last = sweep(ray_cluster, run_dir, "cascade", blocks(9), sweep_blocks.square, data)
    assert (len(last.kept), last.ran, calls(tmp_path)) == (9, (), [])


@pytest.mark.parametrize("where", ["debug", "local"])
def test_a_failing_block_is_named_and_the_others_finish(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
):
    cluster = DEBUG if where == "debug" else request.getfixturevalue("ray_cluster")
    run_dir = RunDir(tmp_path / "run")

    class Count:
        done = failed = 0

        def advance(self, n: int = 1, failed: int = 0) -> None:
            self.done += n
            self.failed += failed

    count = Count()
    found = sweep(
        cluster, run_dir, "cascade", blocks(5), sweep_blocks.picky, tmp_path, progress=count
    )
    assert [b.item for b in found.ran] == ["seeds-0-0", "seeds-3-3", "seeds-4-4"]
    assert (count.done, count.failed) == (5, 2)
    name = "cascade/cell a/scorer/seeds-1-1"
    assert set(found.failed) == {name, "cascade/cell a/scorer/seeds-2-2"}
    assert found.failed[name].cause == "ValueError: one is odd"
    assert "picky" in found.failed[name].trace
    two = found.failed["cascade/cell a/scorer/seeds-2-2"]
    assert two.kind == "user"
    with pytest.raises(UserError, match="two is missing; bring it"):
        two.reraise()
    with pytest.raises(RuntimeError, match=r"seeds-1-1 \(and 1 more blocks\): ValueError"):
        found.reraise()


def test_other_inputs_are_refused_before_anything_runs(tmp_path: Path):
    run_dir, data = RunDir(tmp_path / "run"), shared(tmp_path)
    sweep(DEBUG, run_dir, "cascade", blocks(2), sweep_blocks.square, data)
    changed = [type(b)(b.benchmark, b.agent, b.item, b.spec, "1" * 64) for b in blocks(3)]
    with pytest.raises(UserError, match="another configuration"):
        sweep(DEBUG, run_dir, "cascade", changed, sweep_blocks.square, data)
    with pytest.raises(ValueError, match="one name"):
        sweep(DEBUG, run_dir, "cascade", [*blocks(2), *blocks(1)], sweep_blocks.square, data)
    assert calls(tmp_path) == [0, 1]


def test_workers_show_the_block_by_name_and_settings_are_given_back(
    ray_cluster: Cluster, tmp_path: Path
):
    handler, before = signal.getsignal(signal.SIGUSR1), dict(os.environ)
    run_dir = RunDir(tmp_path / "run")
    found = sweep(ray_cluster, run_dir, "cascade", blocks(2), sweep_blocks.title)
    assert found.failed == {}
    for item, table in parts(run_dir, "titles").items():
        assert f"ray::cascade/cell a/scorer/{item}" in table["title"][0]
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert dict(os.environ) == before


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_block_is_named_if_it_keeps_dying(
    ray_cluster: Cluster, tmp_path: Path
):
    run_dir = RunDir(tmp_path / "run")
    found = sweep(ray_cluster, run_dir, "cascade", blocks(4), sweep_blocks.deadly, str(tmp_path))
    assert set(found.failed) == {"cascade/cell a/scorer/seeds-2-2"}
    assert found.failed["cascade/cell a/scorer/seeds-2-2"].kind == "died"
    assert set(parts(run_dir)) == {"seeds-0-0", "seeds-1-1", "seeds-3-3"}


KILLED = """
import sys
from pathlib import Path
import sweep_blocks
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from cluster.sweep import sweep
root, calls, workers = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with open_cluster("local", workers, object_store_mb=100) as cluster:
    sweep(cluster, RunDir(root), "cascade", sweep_blocks.blocks(12), sweep_blocks.slow, calls)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_driver_resumes_with_what_is_missing(workers: int, tmp_path: Path):
    run_dir, log = RunDir(tmp_path / "run"), tmp_path / "calls"
    log.touch()
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"}
    command = [sys.executable, "-c", KILLED, str(run_dir.root), str(log), str(workers)]
    driver = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(run_dir.items("cascade", "cell a", "scorer")) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    time.sleep(3)  # its workers end with it
    done = run_dir.items("cascade", "cell a", "scorer")
    assert 3 <= len(done) < 12
    log.write_text("")
    subprocess.run(command, env=env, check=True, timeout=200)
    again = {f"seeds-{i}-{i}" for i in log.read_text().split()}
    assert again == {b.item for b in blocks(12)} - set(done)
    assert parts(run_dir) == {f"seeds-{i}-{i}": {"value": [float(i)]} for i in range(12)}
