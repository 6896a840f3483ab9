"""Small collections with a scripted engine on the embedded hospital; also a driver to be killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs import collect
from jobs.config import RunConfig


def config(switches: Path, seconds: float = 0.01, **collect_settings: Any) -> RunConfig:
    return RunConfig.from_mapping(
        {
            "name": "t",
            "benchmarks": [{"name": "clinic", "kind": "clinic", "n_questions": 160,
                            "patients": 300}],
            "agents": [agent("scripted", switches, seconds)],
            "collect": {"workers": 2, "concurrency": 4, **collect_settings},
            "heads": {"folds": 2},
        }
    )  # fmt: skip


def agent(name: str, switches: Path, seconds: float = 0.01) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "custom",
        "factory": "scripted_replies:make",
        "model": f"switches:{switches}",
        "revision": str(seconds),
    }


def run(settings: RunConfig, root: Path, cluster: Cluster) -> RunDir:
    run_dir = RunDir(root)
    run_dir.prepare(settings.model_dump(mode="json"))
    collect.run(settings, run_dir, cluster)
    return run_dir


if __name__ == "__main__":
    with open_cluster("local", cpus=2, object_store_mb=100) as opened:
        run(config(Path(sys.argv[2]), float(sys.argv[3])), Path(sys.argv[1]), opened)
