from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import collecting
import psutil
import pytest
from collecting import assert_equal, lines
from tiny_tokenizers import write_llama

from cluster import collect_tables
from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel import tables
from sentinel.errors import UserError
from sentinel.splits import read_manifest

pytestmark = pytest.mark.usefixtures("one_hospital")
ROOT = Path(__file__).resolve().parents[2]
SLOW = 0.05
"""Seconds per reply where a test must catch a run in the middle."""


@pytest.fixture(scope="module")
def reference(one_hospital: None, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The same collection in a plain loop: what every other way must equal."""
    folder = tmp_path_factory.mktemp("reference")
    with open_cluster("debug", cpus=1) as cluster:
        return collecting.run(collecting.config(folder, 0.0), folder / "runs" / "r", cluster)


def orphans() -> list[str]:
    """Sandbox workers whose parent is gone."""
    found = []
    for process in psutil.process_iter(["ppid", "cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if process.info["ppid"] == 1 and "sentinel.sql" in command:
            found.append(command)
    return found


def test_a_debug_run_gives_checked_sorted_tables(reference: RunDir) -> None:
    tasks, episodes, turns = (reference.read(n) for n in ("tasks", "episodes", "turns"))
    assert episodes.num_rows == tasks.num_rows == 160
    assert episodes["episode_id"].to_pylist() == sorted(episodes["episode_id"].to_pylist())
    assert turns.num_rows == sum(episodes["turns"].to_pylist())
    assert {"answered", "abstained"} <= set(episodes["end"].to_pylist())
    assert set(episodes["attempt"].to_pylist()) == {1}
    manifest = read_manifest(reference.root / "manifests" / "clinic.json")
    assert len(manifest.pool) == 160
    ledgers = reference.root.parent.parent / "ledgers"
    assert [p.name for p in ledgers.iterdir()] == [f"clinic.{manifest.hash()[:16]}.manifest.json"]


def test_two_actors_share_the_work_and_equal_the_debug_run(
    ray_cluster: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    settings = collecting.config(switches)
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", ray_cluster)
    assert_equal(run_dir, reference)
    shares = Counter(run_dir.read("episodes")["worker"].to_pylist())
    assert len(shares) == 2
    assert min(shares.values()) >= 0.2 * 160
    metrics = [json.loads(x) for x in run_dir.metrics_path.read_text().splitlines()]
    (collected,) = [m for m in metrics if m.get("event") == "collected"]
    assert sum(collected["by_replica"]) == collected["episodes"] == 160
    assert collected["deaths"] == []
    paths = [run_dir.table_path(n, "clinic", "scripted") for n in ("episodes", "turns")]
    before = [p.stat().st_mtime_ns for p in paths]
    collecting.run(settings, run_dir.root, ray_cluster)
    assert [p.stat().st_mtime_ns for p in paths] == before
    assert len(lines(run_dir)) == 160


def test_a_killed_worker_is_started_again_and_only_episodes_in_flight_rerun(
    ray_cluster: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    run_dir = RunDir(tmp_path / "runs" / "r")

    def kill(paths: list[Path]) -> None:
        os.kill(int(paths[0].stem.rpartition("-")[2]), signal.SIGKILL)

    watcher = collecting.when_finished(run_dir, 30, kill)
    collecting.run(collecting.config(switches, SLOW), run_dir.root, ray_cluster)
    watcher.join()
    assert_equal(run_dir, reference)
    written = Counter(str(x["episode_id"]) for x in lines(run_dir))
    assert set(written.values()) == {1}, "a finished episode never ran again"
    attempts = Counter(x["attempt"] for x in lines(run_dir))
    assert 1 <= attempts[2] <= 4, "the episodes in flight, at most the concurrency"
    assert '"deaths": ["the worker process died' in run_dir.metrics_path.read_text()
    assert len(collect_tables.journal_paths(run_dir, "clinic", "scripted")) in (2, 3)
    assert orphans() == [], "the sandbox of a killed worker dies with it"


def test_a_killed_driver_resumes(
    ray_cluster: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    run_dir = RunDir(tmp_path / "runs" / "r")
    support = ROOT / "tests" / "support"
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{support}"
    command = [sys.executable, str(support / "collecting.py"), str(run_dir.root), str(switches)]
    driver = subprocess.Popen([*command, str(SLOW)], env=env, stderr=subprocess.DEVNULL)
    collecting.when_finished(run_dir, 30, lambda paths: driver.send_signal(signal.SIGKILL)).join()
    assert driver.wait(60) == -signal.SIGKILL
    time.sleep(1.0)
    before = len(lines(run_dir))
    assert 30 <= before < 160
    assert not run_dir.table_path("episodes", "clinic", "scripted").exists()
    # Another speed would be another agent: the same config, as it was.
    collecting.run(collecting.config(switches, SLOW), run_dir.root, ray_cluster)
    assert_equal(run_dir, reference)
    assert set(Counter(str(x["episode_id"]) for x in lines(run_dir)).values()) == {1}


@pytest.mark.slow
def test_an_episode_that_kills_its_worker_becomes_a_row(
    ray_cluster: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    poison = reference.read("tasks").to_pylist()[40]
    (switches / f"kill-{poison['text'].replace('/', '')[:60]}").touch()
    settings = collecting.config(switches, 0.0, concurrency=2)
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", ray_cluster)
    rows = {r["task_id"]: r for r in run_dir.read("episodes").to_pylist()}
    bad = [t for t, r in rows.items() if r["end"] == "engine_error"]
    assert bad == [poison["task_id"]]
    assert "died each time" in rows[bad[0]]["error"]
    assert len(rows) == 160


def test_a_fault_common_to_all_stops_early_and_a_mended_run_goes_on(
    debug: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    (switches / "fail").touch()
    settings, root = collecting.config(switches, 0.0), tmp_path / "runs" / "r"
    with pytest.raises(UserError, match="no route to the model"):
        collecting.run(settings, root, debug)
    assert len(lines(RunDir(root))) < 160
    (switches / "fail").unlink()
    assert_equal(collecting.run(settings, root, debug), reference)


def test_a_bad_journal_line_costs_its_episode(
    debug: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    settings, root = collecting.config(switches, 0.0), tmp_path / "runs" / "r"
    run_dir = collecting.run(settings, root, debug)
    (path,) = collect_tables.journal_paths(run_dir, "clinic", "scripted")
    data = path.read_bytes().split(b"\n")
    data[3], data[5] = data[3][:-7], data[6]
    path.write_bytes(b"\n".join(data)[:-9])  # and the last line is torn
    for name in ("episodes", "turns"):
        run_dir.table_path(name, "clinic", "scripted").unlink()
    collecting.run(settings, root, debug)
    assert_equal(run_dir, reference)
    assert '"bad": 1, "benchmark": "clinic", "duplicates": 1' in run_dir.metrics_path.read_text()


def test_a_table_that_was_cut_is_rebuilt_from_the_journals(
    debug: Cluster, switches: Path, tmp_path: Path, reference: RunDir
) -> None:
    settings, root = collecting.config(switches, 0.0), tmp_path / "runs" / "r"
    run_dir = collecting.run(settings, root, debug)
    path = run_dir.table_path("turns", "clinic", "scripted")
    path.write_bytes(path.read_bytes()[:-5])
    collecting.run(settings, root, debug)
    assert_equal(run_dir, reference)


def test_what_invalidates_finished_work_and_what_does_not(
    debug: Cluster, switches: Path, tmp_path: Path
) -> None:
    root = tmp_path / "runs" / "r"
    run_dir = collecting.run(collecting.config(switches, 0.0, limit=100), root, debug)
    first = {r["task_id"] for r in run_dir.read("episodes").to_pylist()}
    written = len(lines(run_dir))
    more = collecting.config(switches, 0.0, concurrency=7, limit=120).model_dump(mode="json")
    more["agents"].append(collecting.agent("second", switches, 0.0))
    collecting.run(RunConfig.from_mapping(more), root, debug)
    second = {r["task_id"] for r in run_dir.read("episodes", "clinic", "scripted").to_pylist()}
    assert first < second
    assert len(second) == 120
    assert len(lines(run_dir)) == written + 20
    assert run_dir.read("episodes", "clinic", "second").num_rows == 120
    with pytest.raises(UserError, match="collect changed") as caught:
        collecting.run(collecting.config(switches, 0.0, max_tokens=7, limit=100), root, debug)
    assert "name=NEW" in str(caught.value)
    assert str(run_dir.journals("collect", "scripted")) in str(caught.value)
    with pytest.raises(UserError, match="agent changed"):
        collecting.run(collecting.config(switches, 0.001, limit=100), root, debug)


def test_one_agent_without_weights_leaves_the_others_alone(
    debug: Cluster, switches: Path, tmp_path: Path
) -> None:
    raw = collecting.config(switches, 0.0, limit=100).model_dump(mode="json")
    empty = tmp_path / "empty"
    empty.mkdir()
    raw["agents"].insert(0, {"name": "hollow", "engine": "transformers", "model": str(empty)})
    root = tmp_path / "runs" / "r"
    with pytest.raises(UserError, match="holds no weights"):
        collecting.run(RunConfig.from_mapping(raw), root, debug)
    assert RunDir(root).read("episodes", "clinic", "scripted").num_rows == 100


def test_more_gpus_than_there_are_is_said_before_anything_starts(
    ray_cluster: Cluster, switches: Path, tmp_path: Path
) -> None:
    raw = collecting.config(switches, 0.0, limit=100).model_dump(mode="json")
    raw["agents"][0] |= {"device": "cuda", "tensor_parallel": 2}
    run_dir = RunDir(tmp_path / "runs" / "r")
    with pytest.raises(UserError, match="wants 2 GPUs, the cluster has 0"):
        collecting.run(RunConfig.from_mapping(raw), run_dir.root, ray_cluster)
    assert lines(run_dir) == []


def test_refused_questions_leave_the_tasks_alone(
    debug: Cluster, switches: Path, tmp_path: Path
) -> None:
    settings, root = collecting.config(switches, 0.0, limit=100), tmp_path / "runs" / "r"
    run_dir = collecting.run(settings, root, debug)
    tasks = run_dir.read("tasks")
    raw = settings.model_dump(mode="json")
    raw["benchmarks"][0]["seed"] = 9
    raw["agents"].append(collecting.agent("second", switches, 0.0))
    with pytest.raises(UserError, match=r"clinic/scripted.*benchmark changed"):
        collecting.run(RunConfig.from_mapping(raw), root, debug)
    with pytest.raises(UserError, match="collect changed"):
        collecting.run(collecting.config(switches, 0.0, limit=120, max_tokens=7), root, debug)
    assert run_dir.read("tasks").equals(tasks)
    assert not run_dir.table_path("episodes", "clinic", "second").exists()


def test_rollouts_have_ids_of_their_own(debug: Cluster, switches: Path, tmp_path: Path) -> None:
    settings = collecting.config(switches, 0.0, limit=100, rollouts=2)
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", debug)
    rows = run_dir.read("episodes").to_pylist()
    assert Counter(r["rollout"] for r in rows) == {0: 100, 1: 100}
    assert len({r["episode_id"] for r in rows}) == 200


@pytest.mark.slow
def test_a_real_model_in_two_actors_equals_the_debug_run(
    ray_cluster: Cluster, debug: Cluster, tmp_path: Path
) -> None:
    """In float64: such a model of large random weights makes 1e-4 of a rounding in float32."""
    folder = write_llama(tmp_path / "llama", window=640)
    raw = collecting.config(tmp_path, limit=100, max_tokens=8).model_dump(mode="json")
    agent = {"name": "scripted", "engine": "transformers", "model": str(folder), "dtype": "float64"}
    raw["agents"] = [agent]
    settings = RunConfig.from_mapping(raw)
    spread = collecting.run(settings, tmp_path / "runs" / "ray", ray_cluster)
    alone = collecting.run(settings, tmp_path / "runs" / "debug", debug)
    for name in ("tasks", "episodes", "turns"):
        assert tables.diff(name, spread.read(name), alone.read(name)) == []
    assert len(set(spread.read("episodes")["worker"].to_pylist())) == 2
    turns = spread.read("turns")
    assert turns.num_rows >= 100
    assert turns["generated_ids"].null_count == turns["logprobs"].null_count == 0
    assert set(spread.read("episodes")["prefix_property"].to_pylist()) == {True}
