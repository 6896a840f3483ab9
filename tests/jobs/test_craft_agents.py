"""The embedded crafting agents: from the committed recipe, of five skills, two of them quiet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import config_files as files
from jobs.nano_scores import label, outcomes, play
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.craft import CraftBenchmark
from sentinel.nano import tokenizer_dir, weights_dir, world_of
from sentinel.nano.craft import plan_of
from sentinel.nano.recipe import Recipe, recipe_hash
from sentinel.task_table import draw_pools

ROOT = Path(__file__).resolve().parents[2]
SOURCE = files.read_mapping(ROOT / "configs" / "nano" / "craft.yaml")
AGENTS = tuple(SOURCE["agents"])
QUIET = {"craft-tinker": "first", "craft-weaver": "later"}
"""Agent → the order of work under which it fails."""
CRAFT = CraftBenchmark()
TASKS = list(CRAFT.tasks())


def recipe_of(agent: str) -> dict[str, Any]:
    recipe: dict[str, Any] = json.loads((weights_dir(agent) / "RECIPE.json").read_text())
    return recipe


def success(agent: str) -> np.ndarray:
    return np.array([letter == "r" for letter in recipe_of(agent)["outcomes"]])


def replayed(agent: str, tasks: Sequence[Task]) -> str:
    from cluster.engines.transformers import TransformersEngine

    folder = tokenizer_dir(world_of(agent))
    engine = TransformersEngine(weights_dir(agent), "float32", tokenizer_dir=folder)
    episodes = play(engine, CRAFT, tasks)
    return outcomes(episodes, label(CRAFT, episodes, tasks))


@pytest.mark.parametrize("agent", AGENTS)
def test_weights_come_from_the_committed_recipe_and_world(agent: str) -> None:
    recipe = recipe_of(agent)
    assert recipe["recipe"] == recipe_hash(SOURCE, agent)
    assert recipe["benchmark"] == CRAFT.fingerprint()
    assert (weights_dir(agent) / "model.safetensors").stat().st_size <= 2_000_000
    config = ROOT / "configs" / "agents" / f"nano-{agent}.yaml"
    assert files.read_mapping(config)["model"] == f"nano:{agent}"


def test_a_weight_file_does_what_was_recorded() -> None:
    # Letter by letter on a sample; another processor may break a near tie another way.
    letters = replayed("craft-tinker", TASKS[:30])
    agree = sum(
        a == b for a, b in zip(letters, recipe_of("craft-tinker")["outcomes"], strict=False)
    )
    assert agree >= 29


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_does_what_was_recorded(agent: str) -> None:
    letters = replayed(agent, TASKS[:80])
    agree = sum(a == b for a, b in zip(letters, recipe_of(agent)["outcomes"], strict=False))
    assert agree >= 78


def test_five_levels_of_skill() -> None:
    rates = sorted(recipe_of(agent)["scores"]["all"]["success"] for agent in AGENTS)
    assert len(rates) == 5
    assert 0.15 <= rates[0] <= 0.25
    assert 0.55 <= rates[-1] <= 0.70
    assert min(b - a for a, b in pairwise(rates)) >= 0.03
    for agent in AGENTS:
        assert set(recipe_of(agent)["outcomes"]) <= set("rc")


@pytest.mark.parametrize("agent", QUIET)
def test_two_fail_quietly_by_the_order_of_work_they_settle_on(agent: str) -> None:
    # The first two turns' log-probabilities hardly tell; the order of work does, at any depth.
    assert recipe_of(agent)["scores"]["all"]["lp_auroc"] <= 0.70
    right, doomed = success(agent), np.array([plan_of(t) == QUIET[agent] for t in TASKS])
    assert right[~doomed].mean() - right[doomed].mean() >= 0.4
    deep = np.array([t.meta["depth"] for t in TASKS])
    for level in (2, 3):
        here = deep == level
        assert right[here & ~doomed].mean() - right[here & doomed].mean() >= 0.3


def test_no_task_of_the_pools_was_trained_on() -> None:
    recipe = Recipe.from_mapping(SOURCE)
    assert recipe.world == "craft"
    trained = CRAFT.agent_questions(recipe.seed, 3000)  # the first of recipe.questions
    assert not {t.text for t in trained} & {t.text for t in TASKS}
    assert not {t.group for t in trained} & CRAFT.withheld_groups()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_as_good_on_each_pool(agent: str) -> None:
    # Whole groups differ in a habit's share: the cluster interval of a difference is wide.
    pool_of, right = draw_pools(CRAFT, TASKS).pool, success(agent)
    rates = {}
    for pool in set(pool_of.values()):
        rows = np.array([pool_of[t.task_id] == pool for t in TASKS])
        groups = sorted({t.group for t, r in zip(TASKS, rows, strict=True) if r})
        means = [right[rows & np.array([t.group == g for t in TASKS])].mean() for g in groups]
        rates[pool] = np.mean(means), np.std(means, ddof=1) / np.sqrt(len(groups))
    values = list(rates.values())
    for i, (one, its) in enumerate(values):
        for two, other in values[i + 1 :]:
            assert abs(one - two) <= 2.6 * np.hypot(its, other)
