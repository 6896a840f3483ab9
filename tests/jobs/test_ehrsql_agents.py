"""Agents of one's own on EHRSQL: trained on its `agent` pool, then evaluated, in small."""

from __future__ import annotations

import json
import lzma
import os
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from cluster.run_dir import RunDir
from jobs.__main__ import main
from jobs.config import RunConfig
from sentinel.bootstrap import cluster_weights, group_index
from sentinel.nano.recipe import Recipe

DATA = os.environ.get("SENTINEL_TEST_DATA")
CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PAPER = ("gpt-4o", "gpt-4o-mini", "qwen2.5-coder-7b", "llama-3.1-8b", "phi-4-mini")


def test_the_paper_is_one_config():
    config = RunConfig.from_file(CONFIGS / "ehrsql.yaml")
    assert tuple(a.name for a in config.agents) == PAPER
    assert config.heads.encoder == "answerdotai/ModernBERT-base"
    assert config.label.startswith("judge:gpt-4o-mini")
    assert config.benchmarks[0].mapping().get("agent_share") is None  # the paper's pools


def test_the_recipe_has_three_agents_and_the_demo_names_them():
    recipe = Recipe.from_mapping(yaml.safe_load((CONFIGS / "nano" / "ehrsql.yaml").read_text()))
    config = RunConfig.from_file(CONFIGS / "ehrsql-mimic3-demo.yaml")
    assert [a.name for a in config.agents] == [s.name for s in recipe.agents]


def test_the_recipe_of_the_shared_task_is_found_by_the_benchmarks_kind():
    from jobs import config_files as files
    from jobs.train_nano import _recipe

    mapping = files.resolve("benchmarks", "ehrsql2024-mimic4-demo", CONFIGS)
    path = _recipe(mapping)
    assert path == Path("configs/nano/ehrsql2024.yaml")
    recipe = Recipe.from_mapping(yaml.safe_load((CONFIGS.parent / path).read_text()))
    assert [s.name for s in recipe.agents] == ["ehrsql2024-able"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")
def test_train_and_evaluate_in_small(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    # Training takes a thread per CPU that it may use; on a loaded machine they wait for each other.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    database, questions = tmp_path / "mimic3.sqlite", tmp_path / "questions.json"
    with pa.CompressedInputStream(str(Path(DATA) / "db/mimic3_demo.sqlite.zst"), "zstd") as stream:
        database.write_bytes(stream.read())
    packed = Path(DATA) / "reground/mimic3_demo_questions.json.xz"
    questions.write_text(json.dumps(a_few(json.loads(lzma.decompress(packed.read_bytes())))))
    recipe = yaml.safe_load((CONFIGS / "nano" / "ehrsql.yaml").read_text())
    small = {"tokens": 4_000, "questions": 150, "lr": 0.001, "batch_tokens": 2048}
    recipe |= {"questions": 150, "held_back": 9, "base": recipe["base"] | small}
    recipe["agents"] = {"ehrsql-able": recipe["agents"]["ehrsql-able"] | small}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    benchmark = str(CONFIGS / "benchmarks" / "ehrsql-mimic3-demo.yaml")
    data = [f"database={database}", f"questions={questions}"]
    out = tmp_path / "agents"
    train = ["train-nano", benchmark, "--out", str(out), "--recipe", str(tmp_path / "recipe.yaml")]
    assert main([*train, *data]) == 0
    folder = out / "weights" / "ehrsql-able"
    made = json.loads((folder / "RECIPE.json").read_text())
    assert set(made["scores"]) == {"agent", "all"}  # the level is set by held-back questions alone
    assert len(made["outcomes"]) == 9
    assert (folder / "tokenizer.json").is_file()  # any agent config can name the folder

    root = tmp_path / "runs" / "small"
    agent = f"agents=[{{name: ehrsql-able, engine: transformers, model: {folder}}}]"
    settings = [agent, "collect.limit=60", "collect.max_tokens=160", "heads.kind=tfidf"]
    settings += ["heads.folds=2", "bootstrap.resamples=20"]
    settings += [f"benchmarks.ehrsql-mimic3-demo.{text}" for text in data]
    config = str(CONFIGS / "ehrsql-mimic3-demo.yaml")
    assert main(["run", config, *settings, "--on", "debug", "--run-dir", str(root)]) == 0
    run_dir = RunDir(root)
    assert run_dir.report_path.exists()
    rows = run_dir.read("tasks").to_pylist()
    assert {r["pool"] for r in rows} == {"train", "calibration", "heldout"}
    assert len(run_dir.read("episodes")) == 60
    no_pool_is_easier(run_dir, "ehrsql-mimic3-demo", "ehrsql-able")


def a_few(records: list[dict]) -> list[dict]:
    """At most six questions of each group."""
    seen: Counter[str] = Counter()
    kept = []
    for record in records:
        group = record.get("q_tag") or record["template"]
        seen[group] += 1
        if seen[group] <= 6:
            kept.append(record)
    return kept


def no_pool_is_easier(run_dir: RunDir, benchmark: str, agent: str) -> None:
    """The agent's accuracy differs between pools by no more than its cluster interval."""
    tasks = {r["task_id"]: r for r in run_dir.read("tasks", benchmark).to_pylist()}
    episodes = {
        r["episode_id"]: r["task_id"]
        for r in run_dir.read("episodes", benchmark, agent).to_pylist()
        if r["end"] == "answered"
    }
    right = defaultdict(list)
    for row in run_dir.read("labels", benchmark, agent).to_pylist():
        if row["label"] == "typed" and row["episode_id"] in episodes:
            task = tasks[episodes[row["episode_id"]]]
            right[task["pool"]].append((task["group"], row["correct"]))
    draws = []
    for rows in right.values():
        names, where = group_index([group for group, _ in rows])
        hits = np.bincount(where, [float(c) for _, c in rows], len(names))
        weights = cluster_weights(len(names), 2000, seed=1)
        draws.append((weights @ hits) / (weights @ np.bincount(where, minlength=len(names))))
    for one, two in combinations(draws, 2):
        low, high = np.percentile(one - two, [2.5, 97.5])
        assert low <= 0 <= high
