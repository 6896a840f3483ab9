"""The embedded agents: made by the committed recipe, skilled and wrong in the recorded ways."""

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import config_files as files
from jobs.nano_scores import label, outcomes, play, scores
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.clinic.benchmark import ClinicBenchmark
from sentinel.bootstrap import cluster_weights, group_index
from sentinel.nano import tokenizer_dir, weights_dir
from sentinel.nano.recipe import Recipe, recipe_hash

ROOT = Path(__file__).resolve().parents[2]
SOURCE = files.read_mapping(ROOT / "configs" / "nano" / "clinic.yaml")
AGENTS = tuple(SOURCE["agents"])


def recipe_of(agent: str) -> dict[str, Any]:
    recipe: dict[str, Any] = json.loads((weights_dir(agent) / "RECIPE.json").read_text())
    return recipe


def recorded(agent: str) -> dict[str, Any]:
    every: dict[str, Any] = recipe_of(agent)["scores"]["all"]
    return every


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClinicBenchmark]:
    benchmark = ClinicBenchmark(**_settings())
    benchmark.prepare(tmp_path_factory.mktemp("clinic"))
    yield benchmark
    benchmark.close()


def _settings() -> dict[str, Any]:
    mapping = files.read_mapping(ROOT / "configs" / "benchmarks" / "clinic.yaml")
    return {k: v for k, v in mapping.items() if k != "kind"}


def replayed(agent: str, clinic: ClinicBenchmark, tasks: list[Task]) -> tuple[str, dict[str, Any]]:
    from cluster.engines.transformers import TransformersEngine

    engine = TransformersEngine(weights_dir(agent), "float64", tokenizer_dir=tokenizer_dir())
    episodes = play(engine, clinic, tasks)
    correct = label(clinic, episodes, tasks)
    return outcomes(episodes, correct), scores(episodes, tasks, correct)


@pytest.mark.parametrize("agent", AGENTS)
def test_weights_come_from_the_committed_recipe_and_hospital(
    agent: str, clinic: ClinicBenchmark
) -> None:
    recipe = recipe_of(agent)
    assert recipe["recipe"] == recipe_hash(SOURCE, agent)
    assert recipe["benchmark"] == clinic.fingerprint()
    assert (weights_dir(agent) / "model.safetensors").stat().st_size <= 2_000_000


@pytest.mark.parametrize("agent", AGENTS)
def test_weights_do_what_was_recorded(agent: str, clinic: ClinicBenchmark) -> None:
    # Letter by letter on a sample; another processor may break a near tie another way.
    tasks = list(clinic.tasks())[:80]
    letters, _ = replayed(agent, clinic, tasks)
    agree = sum(a == b for a, b in zip(letters, recipe_of(agent)["outcomes"], strict=False))
    assert agree >= 78


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_weights_score_what_was_recorded(agent: str, clinic: ClinicBenchmark) -> None:
    tasks = list(clinic.tasks())
    letters, measured = replayed(agent, clinic, tasks)
    assert len(letters) == len(recipe_of(agent)["outcomes"])
    for name in ("accuracy", "fabricated", "gave_up"):
        assert measured[name] == pytest.approx(recorded(agent)[name], abs=0.01)
    assert measured["turns"] == pytest.approx(recorded(agent)["turns"], abs=0.02)


def test_five_levels_of_skill_and_different_habits() -> None:
    accuracy = sorted(recorded(agent)["accuracy"] for agent in AGENTS)
    assert len(accuracy) == 5
    assert accuracy[0] <= 0.30
    assert accuracy[-1] >= 0.80
    assert min(np.diff(accuracy)) >= 0.05
    assert max(recorded(a)["fabricated"] for a in AGENTS) >= 0.6
    assert max(recorded(a)["turns"] for a in AGENTS) >= 4
    assert max(recorded(a)["gave_up"] for a in AGENTS) >= 0.3


def test_at_least_two_fail_quietly() -> None:
    # That the correctness head sees more is asserted on the demo's run (tests/check_demo.py).
    assert sum(recorded(agent)["lp_auroc"] <= 0.75 for agent in AGENTS) >= 2


def test_no_question_of_the_three_pools_was_trained_on(clinic: ClinicBenchmark) -> None:
    recipe = Recipe.from_mapping(SOURCE)
    trained = clinic.agent_questions(
        recipe.seed, recipe.questions, unanswerable=recipe.unanswerable
    )
    tasks = clinic.tasks()
    assert not {t.text for t in trained} & {t.text for t in tasks}
    assert not {t.gold for t in trained if t.gold} & {t.gold for t in tasks if t.gold}

    def values(task: Task) -> tuple[str, str]:
        return task.group, json.dumps(task.meta["values"], sort_keys=True, default=str)

    assert not {values(t) for t in trained} & {values(t) for t in tasks}
    assert not {t.group for t in trained} & clinic.withheld_groups()
    assert {t.group for t in trained} < {t.group for t in tasks} | clinic.withheld_groups()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_as_good_on_each_pool(agent: str, clinic: ClinicBenchmark) -> None:
    # Differences between pools stay within the cluster interval of that difference.
    pool_of, letters = clinic.pools(), recipe_of(agent)["outcomes"]
    assert pool_of is not None
    draws = {}
    for pool in sorted(set(pool_of.values())):
        rows = [
            (task.group, letter == "r")
            for task, letter in zip(clinic.tasks(), letters, strict=True)
            if pool_of[task.task_id] == pool and letter in "rw"
        ]
        names, where = group_index([group for group, _ in rows])
        right = np.bincount(where, [float(r) for _, r in rows], len(names))
        weights = cluster_weights(len(names), 2000, seed=1)
        draws[pool] = (weights @ right) / (weights @ np.bincount(where, minlength=len(names)))
    for one, two in combinations(draws.values(), 2):
        low, high = np.percentile(one - two, [2.5, 97.5])
        assert low <= 0 <= high
