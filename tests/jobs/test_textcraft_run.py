"""TextCraft end to end on the published recipes: frozen tasks, small agents, the cascade."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.__main__ import main
from jobs.config_files import read_mapping
from sentinel.nano.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
DATA = os.environ.get("SENTINEL_TEST_DATA")
RECIPE = read_mapping(ROOT / "configs" / "nano" / "textcraft.yaml")


@pytest.fixture
def benchmark(tmp_path: Path) -> dict[str, Any]:
    """TextCraft with tasks frozen in a folder of this test."""
    if not DATA:
        pytest.skip("SENTINEL_TEST_DATA names no benchmark data")
    found = {
        "name": "textcraft",
        "kind": "textcraft",
        "recipes_path": str(Path(DATA) / "textcraft" / "recipes-1.16.5.tar.xz"),
        "tasks_file": str(tmp_path / "tasks.json"),
    }
    (tmp_path / "textcraft.yaml").write_text(yaml.safe_dump(found))
    assert main(["freeze", str(tmp_path / "textcraft.yaml")]) == 0
    return found


def test_the_shipped_recipe_is_read() -> None:
    recipe = Recipe.from_mapping(RECIPE)
    assert recipe.world == "craft"
    assert {a.name.partition("-")[0] for a in recipe.agents} == {"textcraft"}
    assert all(a.habit.plan == "amount" for a in (recipe.base, *recipe.agents))


@pytest.mark.slow
@pytest.mark.data
def test_a_small_recipe_becomes_an_agent_that_speaks_the_worlds_language(
    benchmark: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Training takes a thread per CPU that it may use; on a loaded machine they wait for each other.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    stage = {"tokens": 4000, "lr": 0.002, "batch_tokens": 2048, "questions": 60, "seed": 1}
    small = {
        **RECIPE,
        "questions": 80,
        "held_back": 8,
        "base": stage | {"habit": RECIPE["base"]["habit"]},
    }
    habit = RECIPE["agents"]["textcraft-mason"]["habit"]
    small["agents"] = {"textcraft-small": stage | {"tokens": 2000, "habit": habit}}
    file, out = tmp_path / "recipe.yaml", tmp_path / "nano"
    file.write_text(yaml.safe_dump(small))
    config = str(tmp_path / "textcraft.yaml")
    argv = ["train-nano", config, "--recipe", str(file), "--out", str(out)]
    assert main(argv) == 0
    folder = out / "weights" / "textcraft-small"
    made = json.loads((folder / "RECIPE.json").read_text())
    assert made["scores"]["agent"]["tasks"] == len(made["outcomes"]) == 8
    assert (folder / "model.safetensors").stat().st_size <= 2_000_000
    assert (folder / "tokenizer.json").is_file()  # a model folder of its own
    del benchmark


@pytest.mark.slow
@pytest.mark.data
def test_the_cascade_on_textcraft_reports_depth(benchmark: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    run = {
        "benchmarks": [benchmark],
        "agents": ["random"],
        "monitors": ["cascade"],
        "label": "success",
        "collect": {"workers": 1, "limit": 250},
        "cascade": {
            "scorers": ["surface", "task", "random"],
            "main": "surface",
            "deploy": "surface",
            "targets": [0.9],
            "strict_targets": [0.8],
            "seeds": 2,
            "error_words": ["could not"],
        },
        "bootstrap": {"resamples": 50},
    }
    config.write_text(yaml.safe_dump(run))
    root = tmp_path / "runs" / "textcraft"
    assert main(["run", str(config), "--run-dir", str(root), "--on", "debug"]) == 0
    with (root / "report" / "round_auroc.csv").open() as file:
        rows = list(csv.DictReader(file))
    statistics = {r["statistic"] for r in rows}
    assert {"failure_auroc", "failure_auroc_matched"} <= statistics
    task = {
        r["statistic"]: float(r["point"])
        for r in rows
        if r["scorer"] == "task" and r["round"] == "1" and not r["against"]
    }
    # deep goals are hard for a random policy: the task alone tells nearly all, and less once depth
    # is equal
    assert task["failure_auroc"] > 0.9
    assert task["failure_auroc_matched"] < task["failure_auroc"] - 0.03
    assert "AUROC within equal depth" in (root / "report.html").read_text()
