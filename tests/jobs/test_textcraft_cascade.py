"""The whole cascade on TextCraft with a language model: hidden states, stacking, text heads, depth.

The recipes are our own, in TextCraft's form and in words that an embedded agent of craft knows.
"""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from made_textcraft import write_familiar_recipes

from cluster.run_dir import RunDir
from jobs.__main__ import main
from sentinel.benchmarks.registry import load
from sentinel.benchmarks.textcraft.recipes import folder_hash, read_files
from sentinel.probes.auc import MATCHED, PLAIN, AucItem, intervals

pytestmark = pytest.mark.slow
AGENT, SCORERS, GATES = "nano-craft-tinker", ["probe", "surface", "stacking", "heads", "task"], 3


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_familiar_recipes(tmp_path_factory.mktemp("recipes"))
    settings = {"recipes_path": str(folder), "recipes_sha256": folder_hash(read_files(folder))}
    return {"name": "textcraft", "max_turns": 10, **settings}


@pytest.fixture(scope="module")
def run_dir(benchmark: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    root = tmp_path_factory.mktemp("cascade") / "runs" / "textcraft"
    config = root.parent.parent / "run.yaml"
    run = {
        "benchmarks": [benchmark],
        "agents": [AGENT],
        "monitors": ["cascade"],
        "label": "success",
        "collect": {"workers": 1},
        "activations": {"layers": [3]},
        "heads": {"kind": "tfidf"},
        "cascade": {
            "scorers": SCORERS,
            "modes": ["paper"],
            "main": "stacking",
            "gates": GATES,
            "targets": [0.8],
            "seeds": 2,
            "error_words": ["could not"],
        },
        "bootstrap": {"resamples": 50},
    }
    config.write_text(yaml.safe_dump(run))
    assert main(["run", str(config), "--run-dir", str(root), "--on", "debug"]) == 0
    return RunDir(root)


def test_every_scorer_reads_the_episodes(benchmark: dict[str, Any], run_dir: RunDir) -> None:
    rows = run_dir.read("round_scores_paper", "textcraft", AGENT).to_pylist()
    n_tasks = len(load(benchmark).tasks())
    first: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["round"] == 1:
            first.setdefault(row["scorer"], {})[row["task_id"]] = row["score"]
    assert first.keys() == set(SCORERS)
    for scorer, found in first.items():
        scores = np.array(list(found.values()), dtype=float)
        assert len(scores) == n_tasks == 44
        assert np.isfinite(scores).all()
        assert np.ptp(scores) > 0.01, scorer
    # they read different things
    of = {scorer: tuple(found[t] for t in sorted(found)) for scorer, found in first.items()}
    assert len(set(of.values())) == len(SCORERS)
    succeeded = {row["task_id"] for row in rows if row["success"]}
    assert 4 <= len(succeeded) <= 30
    paper = json.loads((run_dir.root / "cascade" / "textcraft" / AGENT / "paper.json").read_text())
    assert {cell["scorer"] for cell in paper["cells"]} == set(SCORERS)


def test_depth_tells_much_and_nothing_within_equal_depth(
    benchmark: dict[str, Any], run_dir: RunDir
) -> None:
    """A scorer that reads the depth alone: well above chance, and exactly at it once matched."""
    depth = {t.task_id: float(t.meta["depth"]) for t in load(benchmark).tasks()}
    table = run_dir.read("round_scores_paper", "textcraft", AGENT)
    rows = [r for r in table.to_pylist() if r["scorer"] == "task"]
    for row in rows:
        row["score"] = depth[row["task_id"]] / 3
    alone = pa.Table.from_pylist(rows, schema=table.schema)
    item = AucItem("textcraft", AGENT, "paper", alone, GATES, False, depth, "task", 20, 0)
    found = intervals(item)
    assert found[PLAIN, "task", None, "paper r=1"].point > 0.6
    assert found[MATCHED, "task", None, "paper r=1"].point == 0.5
    with (run_dir.root / "report" / "round_auroc.csv").open() as file:
        said = {(r["scorer"], r["statistic"]) for r in csv.DictReader(file) if r["round"] == "1"}
    assert {(s, statistic) for s in SCORERS for statistic in (PLAIN, MATCHED)} <= said
    page = (run_dir.root / "report.html").read_text()
    assert "AUROC within equal depth" in page
    assert "Only pairs of a failure and a success of equal depth are compared." in page
