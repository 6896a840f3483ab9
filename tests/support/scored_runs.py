"""Small finished runs with a frozen monitor, for `sentinel score`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from made_episodes import made_collection

import jobs.calibrate
import jobs.heads
import jobs.label
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from jobs.__main__ import main
from jobs.config import RunConfig

SMALL = {"width": 16, "layers": 1, "epochs": 1, "learning_rate": 0.01, "batch_size": 8}
PLACE = "made", "steady"


def config(**heads: Any) -> RunConfig:
    agents = [
        {"name": n, "engine": "transformers", "model": f"nano:{n}"} for n in ("steady", "other")
    ]
    return RunConfig.from_mapping(
        {
            "name": "mini",
            "on": "debug",
            "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
            "agents": agents,
            "heads": {"folds": 2, "validation": 0.2, **heads},
            "decide": {"gate_budget": "0.2", "lambdas": [1, 4]},
            "bootstrap": {"resamples": 100},
        }
    )


def finished(root: Path, settings: RunConfig) -> RunDir:
    run_dir = RunDir(root / "runs" / "mini")
    run_dir.prepare(settings.model_dump(mode="json"))
    made_collection(run_dir)
    with open_cluster("debug", 1) as cluster:
        for stage in (jobs.label, jobs.heads, jobs.calibrate):
            stage.run(settings, run_dir, cluster)
    return run_dir


def run_of(root: Path, heads: dict[str, Any]) -> Iterator[RunDir]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(root / "cache"))
        yield finished(root, config(**heads))


def copy(run_dir: RunDir, folder: Path, episodes: int | None = None) -> RunDir:
    """The same run elsewhere; with `episodes` before the others were collected or labelled."""
    found = RunDir(shutil.copytree(run_dir.root, folder / "runs" / "target"))
    shutil.rmtree(found.root / "scored", ignore_errors=True)
    if episodes is not None:
        ids = sorted(run_dir.read("episodes", *PLACE)["episode_id"].to_pylist())
        keep = pc.field("episode_id").isin(ids[:episodes])
        for name in ("episodes", "turns", "labels", "features"):
            table = run_dir.read(name, *PLACE).filter(keep)
            found.write_table(name, *PLACE, table, stage="collect", source="first")
    return found


def monitor(run_dir: RunDir) -> Path:
    return run_dir.root / "monitor" / "made" / "steady" / "sentinel"


def score(*arguments: object) -> int:
    return main(["score", *map(str, arguments), "--on", "debug"])


def numbers(run_dir: RunDir) -> list[dict[str, Any]]:
    lines = map(json.loads, run_dir.metrics_path.read_text().splitlines())
    return [m for m in lines if m.get("event") == "scored"]


def written(run_dir: RunDir) -> Any:
    (path,) = (run_dir.root / "scored" / "made" / "steady").glob("prefix_scores-*.parquet")
    return pq.read_table(path)
