"""A run that a monitor is fitted on, and one that obeys it: configs and rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel import tables

AGENT, LAM, N = "nano-sage", "4", 140
PLACE = "clinic", AGENT


def config(**changes: Any) -> RunConfig:
    """An agent that looks before it answers; a gate and stakes under which every rule fires."""
    hospital = {"name": "clinic", "kind": "clinic", "n_questions": N, "patients": 300, "seed": 1}
    raw: dict[str, Any] = {
        "name": "fitted",
        "seed": 7,
        "benchmarks": [hospital],
        "agents": [AGENT],
        "collect": {"workers": 2, "concurrency": 8},
        "heads": {"kind": "tfidf", "folds": 2},
        "decide": {"gate_budget": "0.3", "lambdas": [1, 4]},
    }
    return RunConfig.from_mapping({**raw, **changes})


def obeying(fitted: RunDir, **changes: Any) -> RunConfig:
    """The same run under the monitors of another."""
    path = str(fitted.root / "monitor")
    return config(**{"name": "watched", "stop_with": path, "obey": {"lam": 4}, **changes})


def rows(run_dir: RunDir, name: str) -> dict[str, dict[str, Any]]:
    """A table with one row per episode."""
    return {r["episode_id"]: r for r in run_dir.read(name, *PLACE).to_pylist()}


def features(run_dir: RunDir) -> dict[str, np.ndarray]:
    """(T+1, 10) of each episode, as the decision layer reads them."""
    found: dict[str, list[list[float | None]]] = {}
    for row in run_dir.read("features", *PLACE).to_pylist():
        found.setdefault(row["episode_id"], []).append([row[n] for n in tables.FEATURES])
    return {name: np.array(some, dtype=np.float64) for name, some in found.items()}
