"""A collection that obeys a frozen monitor equals that monitor played over unwatched episodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import collecting
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from obeying import AGENT, LAM, PLACE, N, config, features, obeying, rows

import jobs.calibrate
import jobs.collect
import jobs.heads
import jobs.label
import jobs.probes
from cluster.engines import agent_hash
from cluster.head_stages import Where, read_episodes, read_tasks
from cluster.obey import Orders
from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs import __main__ as cli
from jobs import obey, status
from jobs.config import RunConfig
from sentinel import tables
from sentinel.benchmarks import registry
from sentinel.errors import UserError
from sentinel.heads.live import LiveTfidf
from sentinel.monitor import Monitor, load

pytestmark = pytest.mark.usefixtures("one_hospital")


@pytest.fixture(scope="module")
def fitted(one_hospital: None, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The unwatched run that the monitor is of."""
    root, settings = tmp_path_factory.mktemp("fitted") / "runs" / "fitted", config()
    with open_cluster("debug", cpus=1) as cluster:
        run_dir = collecting.run(settings, root, cluster)
        for stage in (jobs.label, jobs.heads, jobs.calibrate):
            stage.run(settings, run_dir, cluster)
    return run_dir


@pytest.fixture(scope="module")
def watched(fitted: RunDir, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The same tasks again, under the monitor."""
    root = tmp_path_factory.mktemp("watched") / "runs" / "watched"
    with open_cluster("debug", cpus=1) as cluster:
        return collecting.run(obeying(fitted), root, cluster)


def decided(fitted: RunDir, watched: RunDir) -> tuple[dict[str, int], set[Any]]:
    """Check every watched episode against the policy played over the unwatched one.

    Returns the turns of each, and the pairs of (end, rule that fired) that occurred.
    """
    monitor = load(fitted.root / "monitor" / "clinic" / AGENT / "sentinel")
    assert isinstance(monitor, Monitor)
    where = Where(str(fitted.root), *PLACE)
    tasks, exits, ends = read_tasks(where), rows(watched, "exits"), rows(watched, "episodes")
    ten, exact = features(fitted), isinstance(monitor.heads.live, LiveTfidf)
    cut, seen = {}, set()
    for episode in read_episodes(where, set(exits), telemetry=True):
        name = episode.episode_id
        verdict = monitor.replay(tasks[episode.task_id]["text"], episode, LAM, features=ten[name])
        row = exits[name]
        assert (row["exit_time"], row["exit_by"], row["delivered"]) == (
            verdict.t,
            verdict.by,
            verdict.delivered,
        )
        for p in ("p_answerable", "p_prefix", "p_delivery"):
            expected_p = getattr(verdict, p)
            assert row[p] == (expected_p if exact else pytest.approx(expected_p, abs=1e-5))
        assert (row["monitor"], row["policy"]) == (monitor.facts["hash"], "early-exit, λ = 4")
        early = verdict.by is not None and verdict.t < episode.turns
        expected = ("stopped" if verdict.t else "refused") if early else episode.end
        assert (ends[name]["end"], ends[name]["turns"]) == (expected, verdict.t)
        cut[name] = verdict.t
        seen.add((expected, verdict.by))
    assert cut.keys() == exits.keys() == ends.keys()
    return cut, seen


def test_watched_episodes_are_the_unwatched_ones_cut_where_the_policy_ends_them(
    fitted: RunDir, watched: RunDir
) -> None:
    (cut, seen), ends = decided(fitted, watched), rows(watched, "episodes")
    assert len(cut) == N
    assert seen >= {("answered", None), ("answered", "chow"), ("refused", "gate")}
    assert {end for end, _ in seen} >= {"refused", "stopped"}
    assert {by for _, by in seen} >= {"gate", "stop", "chow"}
    turns = fitted.read("turns", *PLACE)
    kept = [
        t["turn"] <= cut[t["episode_id"]] for t in turns.select(["episode_id", "turn"]).to_pylist()
    ]
    assert tables.diff("turns", watched.read("turns", *PLACE), turns.filter(pa.array(kept))) == []
    whole = pa.array([n for n, e in ends.items() if e["end"] not in tables.MONITORED])
    left, right = (
        r.read("episodes", *PLACE).filter(pc.is_in(r.read("episodes", *PLACE)["episode_id"], whole))
        for r in (watched, fitted)
    )
    assert tables.diff("episodes", left, right) == []


def test_it_decides_as_the_held_out_decisions_of_its_own_run(
    fitted: RunDir, watched: RunDir
) -> None:
    exits = rows(watched, "exits")
    held = [
        r
        for r in fitted.read("decisions", *PLACE).to_pylist()
        if (r["system"], r["lam"]) == ("early-exit", float(LAM))
    ]
    assert len(held) >= 20
    for row in held:
        found = exits[row["episode_id"]]
        for column in ("exit_time", "exit_by", "delivered"):
            assert found[column] == row[column]


def test_what_it_did_is_told(
    fitted: RunDir, watched: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = Counter(r["end"] for r in rows(watched, "episodes").values())
    withheld = sum(
        rows(watched, "episodes")[n]["end"] == "answered" and r["delivered"] is False
        for n, r in rows(watched, "exits").items()
    )
    line = (
        f"clinic/{AGENT}: a monitor refused {ends['refused']}, stopped {ends['stopped']} and "
        f"withheld {withheld} of {N} episodes"
    )
    assert line in "\n".join(status.lines(status.status(watched.root, obeying(fitted))))
    lines = map(json.loads, watched.metrics_path.read_text().splitlines())
    (found,) = [m["monitored"] for m in lines if m.get("event") == "collected"]
    told = {"refused": ends["refused"], "stopped": ends["stopped"], "withheld": withheld}
    assert found == told
    (recorded,) = json.loads(watched.env_path.read_text())["stop_with"]
    assert recorded["hash"] == next(iter(rows(watched, "exits").values()))["monitor"]
    assert (recorded["benchmark"], recorded["agent"], recorded["lam"]) == (*PLACE, "4")
    assert "stop_with" not in json.loads(fitted.env_path.read_text())
    assert not fitted.table_path("exits", *PLACE).exists()


@pytest.mark.slow
def test_replicas_and_their_deaths_change_nothing(
    ray_cluster: Cluster, fitted: RunDir, watched: RunDir, tmp_path: Path
) -> None:
    run_dir = RunDir(tmp_path / "runs" / "watched")

    def kill(paths: list[Path]) -> None:
        os.kill(collecting.pid_of(paths[0]), signal.SIGKILL)

    watcher = collecting.when_finished(run_dir, 10, kill, AGENT)
    collecting.run(obeying(fitted), run_dir.root, ray_cluster)
    watcher.join()
    assert_same(run_dir, watched)
    assert '"deaths": ["the worker process died' in run_dir.metrics_path.read_text()


def test_a_collection_cut_in_the_middle_goes_on(
    debug: Cluster, fitted: RunDir, watched: RunDir, tmp_path: Path
) -> None:
    run_dir = RunDir(shutil.copytree(watched.root, tmp_path / "runs" / "watched"))
    shutil.rmtree(run_dir.root / "tables")
    (journal,) = collecting.journals(run_dir, AGENT)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: N // 2]) + lines[N // 2][:50])
    collecting.run(obeying(fitted), run_dir.root, debug)
    assert_same(run_dir, watched)


def assert_same(run_dir: RunDir, reference: RunDir) -> None:
    for name in ("tasks", "exits", "episodes", "turns"):
        assert tables.diff(name, run_dir.read(name), reference.read(name)) == []


@pytest.mark.slow
def test_encoder_heads_read_as_their_monitor_does(
    debug: Cluster, fitted: RunDir, tmp_path: Path
) -> None:
    heads = {"folds": 2, "width": 32, "layers": 1, "epochs": 2, "learning_rate": 0.01}
    settings = config(heads={**heads, "batch_size": 8})
    run_dir = RunDir(tmp_path / "runs" / "fitted")
    for part in ("parts/collect", "parts/label", "tables", "manifests"):
        shutil.copytree(fitted.root / part, run_dir.root / part)
    shutil.rmtree(run_dir.root / "tables" / "scores")
    for stage in (jobs.heads, jobs.calibrate):
        stage.run(settings, run_dir, debug)
    few = {"workers": 1, "concurrency": 8, "limit": 100}
    watched = collecting.run(obeying(run_dir, collect=few), tmp_path / "runs" / "watched", debug)
    cut, seen = decided(run_dir, watched)
    assert len(cut) == 100
    assert len({by for _, by in seen}) > 1


# What is refused, before any episode runs


@pytest.mark.parametrize(
    ("changes", "says", "way_out"),
    [
        ({"stop_with": "/nowhere/monitor"}, "is no folder", "remove stop_with"),
        ({"obey": {}}, "has stops for several λ", "obey.lam to one of: 1, 4"),
        ({"obey": {"lam": 2}}, "no stop for λ = 2", "use one of: 1, 4"),
        ({"obey": {"lam": 4, "method": "cascade"}}, "has no cascade monitor", "sentinel search"),
        (
            {"agents": [{"from": AGENT, "max_tokens": 50, "dtype": "float32"}]},
            "other weights",
            "fit",
        ),
        ({"agents": ["nano-hasty"]}, "has no monitor of clinic/nano-hasty", "name its folder"),
    ],
)
def test_a_wrong_order_is_refused_in_one_line(
    debug: Cluster, fitted: RunDir, tmp_path: Path, changes: Any, says: str, way_out: str
) -> None:
    refused(debug, obeying(fitted, **changes), tmp_path / "runs" / "r", says, way_out)


def refused(cluster: Cluster, settings: RunConfig, root: Path, says: str, way_out: str) -> None:
    with pytest.raises(UserError) as caught:
        collecting.run(settings, root, cluster)
    assert says in caught.value.cause
    assert way_out in caught.value.remedy
    assert "\n" not in str(caught.value)
    assert not list(root.rglob("*.jsonl")) or not any(
        p.name != "metrics.jsonl" for p in root.rglob("*.jsonl")
    )


def test_monitors_of_others_are_refused(debug: Cluster, fitted: RunDir, tmp_path: Path) -> None:
    folder = str(fitted.root / "monitor" / "clinic" / AGENT)
    plain = obeying(fitted).model_dump(mode="json")
    other = {**plain["benchmarks"][0], "name": "other"}
    settings = obeying(fitted, benchmarks=[other], stop_with=folder)
    refused(
        debug, settings, tmp_path / "runs" / "a", "is of benchmark clinic, not other", "name one"
    )
    settings = obeying(fitted, agents=["nano-hasty"], stop_with=folder)
    refused(
        debug, settings, tmp_path / "runs" / "b", "other weights or settings", "remove stop_with"
    )
    fresh = {**plain["benchmarks"][0], "seed": 9}
    settings = obeying(fitted, benchmarks=[fresh])
    refused(debug, settings, tmp_path / "runs" / "c", "of other tasks", "obey.other_tasks=true")


def test_a_folder_has_four_names_and_two_kinds_must_be_told_apart(
    fitted: RunDir, tmp_path: Path
) -> None:
    def found(path: Path, **obey_settings: Any) -> Orders | None:
        settings = obeying(fitted, stop_with=str(path), obey={"lam": 4, **obey_settings})
        (item,), (agent,) = settings.benchmarks, settings.agents
        benchmark = registry.load(item.mapping())
        try:
            return obey.orders(
                settings,
                RunDir(tmp_path / "runs" / "r"),
                item,
                agent,
                agent_hash=agent_hash(agent.model_dump(exclude_none=True)),
                fingerprint=benchmark.fingerprint(),
                dialect=benchmark.dialect,
            )
        finally:
            benchmark.close()

    own = fitted.root / "monitor" / "clinic" / AGENT
    orders = found(own / "sentinel")
    assert orders is not None
    assert (orders.folder, orders.lam, orders.target) == (str(own / "sentinel"), "4", None)
    for path in (own, own.parent, own.parent.parent, fitted.root):
        assert found(path) == orders
    copy = shutil.copytree(own, tmp_path / "both")
    (copy / "cascade").mkdir()
    (copy / "cascade" / "cascade.json").write_text("{}")
    with pytest.raises(UserError, match="a sentinel and a cascade monitor"):
        found(copy)
    told = found(copy, method="sentinel")
    assert told is not None
    assert told.inputs == orders.inputs
    with pytest.raises(UserError, match=r"cascade\.json cannot be read"):
        found(copy, method="cascade")


@pytest.mark.slow
def test_other_tasks_of_the_benchmark_may_be_allowed(
    debug: Cluster, fitted: RunDir, tmp_path: Path
) -> None:
    fresh = {**obeying(fitted).model_dump(mode="json")["benchmarks"][0], "seed": 9}
    settings = obeying(
        fitted,
        benchmarks=[fresh],
        obey={"system": "gate", "other_tasks": True},
        collect={"workers": 1, "concurrency": 8, "limit": 100},
    )
    run_dir = collecting.run(settings, tmp_path / "runs" / "r", debug)
    exits = run_dir.read("exits", *PLACE)
    assert set(exits["policy"].to_pylist()) == {"gate, λ = 1"}
    assert set(exits["exit_by"].to_pylist()) == {None, "gate"}
    assert exits["p_prefix"].null_count == exits["p_delivery"].null_count == 100


def test_a_run_does_not_obey_itself(
    debug: Cluster, fitted: RunDir, watched: RunDir, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is of this same run"):
        jobs.collect.run(obeying(fitted), fitted, debug)
    copy = tmp_path / "runs" / "copy"
    shutil.copytree(fitted.root / "monitor", copy / "monitor")
    refused(debug, obeying(fitted), copy, "is a copy of this same run's own", "name=NEW")


def test_a_damaged_monitor_is_refused(debug: Cluster, fitted: RunDir, tmp_path: Path) -> None:
    folder = shutil.copytree(fitted.root / "monitor" / "clinic" / AGENT, tmp_path / "m")
    (folder / "sentinel" / "policy.json").write_text("{}")
    settings = obeying(fitted, stop_with=str(folder))
    refused(debug, settings, tmp_path / "runs" / "r", "policy.json was changed", "export it again")


def test_another_monitor_under_finished_episodes_is_refused(
    debug: Cluster, fitted: RunDir, watched: RunDir, tmp_path: Path
) -> None:
    run_dir = RunDir(shutil.copytree(watched.root, tmp_path / "runs" / "watched"))
    for settings in (obeying(fitted, obey={"lam": 1}), config(name="watched")):
        with pytest.raises(UserError, match="stop_with changed") as caught:
            jobs.collect.run(settings, run_dir, debug)
        assert "name=NEW" in caught.value.remedy
    assert_same(run_dir, watched)
    moved = shutil.copytree(fitted.root / "monitor", tmp_path / "elsewhere")
    jobs.collect.run(obeying(fitted, stop_with=str(moved)), run_dir, debug)


# Downstream: nobody takes a stopped episode for one with an outcome


def test_stages_refuse_stopped_episodes_unless_told_to_drop_them(
    debug: Cluster, watched: RunDir, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = RunDir(shutil.copytree(watched.root, tmp_path / "runs" / "w"))
    cascade = {"scorers": ["surface"], "main": "surface", "deploy": "surface", "modes": ["paper"]}
    plain, told = (
        config(decide={"gate_budget": "0.3", "lambdas": [4], "drop_stopped": d}, cascade=cascade)
        for d in (False, True)
    )
    says = r"have no outcome.*decide\.drop_stopped=true"
    with pytest.raises(UserError, match=says):
        jobs.label.run(plain, run_dir, debug)
    assert not run_dir.table_path("labels", *PLACE).exists()
    jobs.label.run(told, run_dir, debug)
    ended = sum(r["end"] in tables.MONITORED for r in rows(run_dir, "episodes").values())
    left = Counter(r["source"] for r in rows(run_dir, "labels").values())
    assert left["no-outcome"] == ended
    with pytest.raises(UserError, match=says):
        jobs.heads.run(plain, run_dir, debug)
    jobs.probes.run(plain, run_dir, debug)
    assert "episodes that a monitor ended have no outcome" in caplog.text
    assert not run_dir.table_path("round_scores_paper", *PLACE).exists()
    jobs.probes.run(told, run_dir, debug)
    scored = set(run_dir.read("round_scores_paper", *PLACE)["episode_id"].to_pylist())
    assert len(scored) == N - ended
    jobs.heads.run(told, run_dir, debug)
    with pytest.raises(UserError, match="no outcome"):
        jobs.calibrate.run(plain, run_dir, debug)
    metrics = [json.loads(x) for x in run_dir.metrics_path.read_text().splitlines()]
    (dropped,) = [m["dropped"] for m in metrics if m.get("event") == "snapshots"]
    assert sum(dropped.values()) == ended


def test_the_command_line_says_it_in_one_line(
    fitted: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(obeying(fitted).to_json())
    argv = [
        "collect",
        str(path),
        "stop_with=here",
        "--run-dir",
        str(tmp_path / "r"),
        "--on",
        "debug",
    ]
    assert cli.main(argv) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("sentinel: ")]
    assert f"stop_with: {Path.cwd() / 'here'} is no folder" in line
