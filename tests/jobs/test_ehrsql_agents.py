"""Agents of one's own on EHRSQL: trained on its `agent` pool, then evaluated, in small."""

from __future__ import annotations

import json
import lzma
import os
from collections import defaultdict
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
    small = {"tokens": 100_000, "questions": 300, "lr": 0.002, "batch_tokens": 2048}
    recipe |= {"questions": 300, "held_back": 9, "base": recipe["base"] | small}
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
    right = outcomes_of(run_dir, "ehrsql-mimic3-demo", "ehrsql-able")
    assert set(right) == {"train", "calibration", "heldout"}  # there is something to compare
    assert 0 < sum(c for rows in right.values() for _, c in rows) < sum(map(len, right.values()))
    assert easier_pools(right) == []


def a_few(records: list[dict]) -> list[dict]:
    """At most eight questions of each of the forty groups with the shortest gold queries, and of
    those without an answer: what an agent learns something of in seconds."""
    groups: dict[str, list[dict]] = defaultdict(list)
    for record in records:
        groups[record.get("q_tag") or record["template"]].append(record)
    answerable = [g for g, rows in groups.items() if not rows[0]["is_impossible"]]
    answerable.sort(key=lambda g: (sum(len(r["query"]) for r in groups[g]) / len(groups[g]), g))
    kept = {*answerable[:40], *(groups.keys() - set(answerable))}
    return [r for g, rows in groups.items() if g in kept for r in rows[:8]]


def test_the_check_sees_an_easier_pool() -> None:
    """Forty templates of six questions per pool; one pool's answers are right more often."""
    rng = np.random.default_rng(3)

    def pool(name: str, accuracy: float) -> list[tuple[str, bool]]:
        return [(f"{name}{g}", bool(rng.random() < accuracy)) for g in range(40) for _ in range(6)]

    alike = {name: pool(name, 0.6) for name in ("train", "calibration", "heldout")}
    assert easier_pools(alike) == []
    assert easier_pools(alike | {"heldout": pool("heldout", 0.85)}) == [
        ("train", "heldout"),
        ("calibration", "heldout"),
    ]


def outcomes_of(run_dir: RunDir, benchmark: str, agent: str) -> dict[str, list[tuple[str, bool]]]:
    """Pool → (group, right) of every answer."""
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
    return dict(right)


def easier_pools(right: dict[str, list[tuple[str, bool]]]) -> list[tuple[str, str]]:
    """Pairs of pools whose accuracies differ by more than the 95 % cluster interval allows."""
    draws = {}
    for pool, rows in right.items():
        names, where = group_index([group for group, _ in rows])
        hits = np.bincount(where, [float(c) for _, c in rows], len(names))
        weights = cluster_weights(len(names), 2000, seed=1)
        draws[pool] = (weights @ hits) / (weights @ np.bincount(where, minlength=len(names)))
    found = []
    for one, two in combinations(draws, 2):
        low, high = np.percentile(draws[one] - draws[two], [2.5, 97.5])
        if not low <= 0 <= high:
            found.append((one, two))
    return found
