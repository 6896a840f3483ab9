"""A collection under round gates is aborted where the strict table's play aborts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import collecting
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import jobs.activations
import jobs.label
import jobs.probes
import jobs.search
from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel import tables
from sentinel.cascade.play import play
from sentinel.cascade.table import from_table
from sentinel.errors import UserError
from sentinel.monitor import load
from sentinel.monitor.running import ROUND_GATE
from sentinel.probes.monitor import CascadeMonitor

TARGET = "0.4"
AGENT = {"from": "nano-craft-tinker", "name": "tinker", "dtype": "float64"}
PLACE = "craft", "tinker"
NOT_SEEN = ("observation", "rendered", "status", "n_rows", "n_cols")
"""What a turn lacks that was ended before the environment answered."""


def config(deploy: str, **changes: Any) -> RunConfig:
    cascade = {"modes": ["strict"], "deploy": deploy, "strict_targets": [TARGET]}
    raw: dict[str, Any] = {
        "name": "fitted",
        "benchmarks": ["craft"],
        "agents": [AGENT],
        "monitors": ["cascade"],
        "label": "success",
        "collect": {"limit": 60, "concurrency": 32},
        "activations": {"layers": [2]},
        "heads": {"kind": "tfidf"},
        # a margin promises nothing, but aborts on few episodes too, where gates may lose many
        "cascade": {**cascade, "method": "margin", "grid": ["0.3", "0.5", "0.7", "1"]},
        **changes,
    }
    return RunConfig.from_mapping(raw)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Unwatched episodes, labelled, with hidden states."""
    root, settings = tmp_path_factory.mktemp("fitted") / "runs" / "fitted", config("probe")
    with open_cluster("debug", cpus=1) as cluster:
        run_dir = collecting.run(settings, root, cluster)
        for stage in (jobs.label, jobs.activations):
            stage.run(settings, run_dir, cluster)
    return run_dir


def fitted(collected: RunDir, root: Path, deploy: str, cluster: Cluster) -> RunDir:
    run_dir = RunDir(shutil.copytree(collected.root, root / "runs" / "fitted"))
    for stage in (jobs.probes, jobs.search):
        stage.run(config(deploy), run_dir, cluster)
    return run_dir


@pytest.mark.slow
@pytest.mark.parametrize("deploy", ["tfidf", "stacking"])
def test_episodes_are_aborted_where_the_table_aborts_them(
    debug: Cluster, collected: RunDir, tmp_path: Path, deploy: str
) -> None:
    before = fitted(collected, tmp_path, deploy, debug)
    settings = config(deploy, name="watched", stop_with=str(before.root))
    after = collecting.run(settings, tmp_path / "runs" / "watched", debug)
    monitor = load(before.root / "monitor" / "craft" / "tinker" / "cascade")
    assert isinstance(monitor, CascadeMonitor)
    (rounds,) = from_table(before.read("round_scores_strict", *PLACE))
    gates = play(monitor.policy(TARGET).thresholds, rounds).gate
    exits = {r["episode_id"]: r for r in after.read("exits", *PLACE).to_pylist()}
    ends = {r["episode_id"]: r for r in after.read("episodes", *PLACE).to_pylist()}
    own = {r["episode_id"]: r for r in before.read("episodes", *PLACE).to_pylist()}
    assert exits.keys() == ends.keys() == own.keys()
    scored = rounds.pool != "fit"
    for i in np.flatnonzero(scored):
        name, gate = rounds.episode[i], int(gates[i])
        found = exits[name]
        assert found["exit_time"] == (gate or own[name]["turns"])
        assert found["exit_by"] == (ROUND_GATE if gate else None)
        assert found["delivered"] == (not gate and own[name]["end"] == "answered")
        assert ends[name]["end"] == ("stopped" if gate else own[name]["end"])
        if gate and found["score"] is not None:
            assert found["score"] == pytest.approx(rounds.score[i, gate - 1], abs=1e-12)
    assert {bool(g) for g in gates[scored]} == {True, False}
    same_until_the_exit(after, before, {n: r["exit_time"] for n, r in exits.items()})
    whole = pa.array([n for n, e in ends.items() if e["end"] != "stopped"])
    left, right = (r.read("episodes", *PLACE) for r in (after, before))
    keep = pc.is_in(left["episode_id"], whole), pc.is_in(right["episode_id"], whole)
    assert tables.diff("episodes", left.filter(keep[0]), right.filter(keep[1])) == []


def same_until_the_exit(after: RunDir, before: RunDir, cut: dict[str, int]) -> None:
    """Every turn that was run is the unwatched one; an aborted one lacks its feedback."""
    ends = {r["episode_id"]: r["end"] for r in after.read("episodes", *PLACE).to_pylist()}
    expected = []
    for turn in before.read("turns", *PLACE).to_pylist():
        name = turn["episode_id"]
        if turn["turn"] < cut[name] or (turn["turn"] == cut[name] and ends[name] != "stopped"):
            expected.append(turn)
        elif turn["turn"] == cut[name]:
            unseen = {"observation": "", "rendered": "", "status": "none"}
            expected.append({**turn, **dict.fromkeys(NOT_SEEN), **unseen})
    table = tables.TURNS.from_rows(expected)
    assert tables.diff("turns", after.read("turns", *PLACE), table) == []


@pytest.mark.slow
def test_what_a_cascade_cannot_obey_is_refused(
    debug: Cluster, collected: RunDir, tmp_path: Path
) -> None:
    before = fitted(collected, tmp_path, "probe", debug)
    settings = config("probe", name="w", stop_with=str(before.root / "monitor"))
    for changes, says, way_out in (
        ({"obey": {"target": "0.5"}}, "no policy for target 0.5", "use one of: 0.4"),
        ({"obey": {"method": "sentinel"}}, "has no sentinel monitor", "calibrate"),
        ({"agents": [{**AGENT, "dtype": "float32"}]}, "other weights or settings", "fit a monitor"),
        (
            {"agents": [{**AGENT, "engine": "vllm"}]},
            "reads hidden states, which engine vllm does not give",
            "surface, tfidf or heads",
        ),
    ):
        wrong = RunConfig.from_mapping({**settings.model_dump(mode="json"), **changes})
        with pytest.raises(UserError) as caught:
            collecting.run(wrong, tmp_path / "runs" / "w", debug)
        assert says in caught.value.cause
        assert way_out in caught.value.remedy
