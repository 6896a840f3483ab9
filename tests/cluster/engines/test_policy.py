"""Agents without a model: the oracle is the ceiling of a world, the random policy its floor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from made_webshop import write_catalogue

from cluster.engines import agent_hash, make_engine
from cluster.engines.policy import PolicyEngine
from cluster.run_dir import RunDir
from jobs.__main__ import main
from sentinel.agent.loop import run_task
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.craft import CraftBenchmark
from sentinel.benchmarks.craft.environment import CraftEnvironment
from sentinel.benchmarks.registry import load
from sentinel.engine import Request
from sentinel.episodes import Episode
from sentinel.errors import UserError

CRAFT = CraftBenchmark()


def agent(policy: str) -> dict[str, Any]:
    return {"name": policy, "engine": "policy", "model": policy}


def episodes(policy: str, benchmark: Any, tasks: Any) -> list[Episode]:
    engine = make_engine(agent(policy))

    async def every() -> list[Episode]:
        return list(
            await asyncio.gather(*(run_task(engine, benchmark, t, agent=policy) for t in tasks))
        )

    return asyncio.run(every())


def test_the_oracle_crafts_every_goal_and_words_are_its_cost() -> None:
    tasks = CRAFT.tasks()[:100]
    found = episodes("oracle", CRAFT, tasks)
    assert all(e.success for e in found)
    assert [e.turns for e in found] == [t.meta["steps"] for t in tasks]
    assert all(e.generated_tokens >= e.turns for e in found)
    assert all(s.logprobs is None for e in found for s in e.steps)


def test_the_random_policy_rarely_wins_and_comes_again() -> None:
    tasks = CRAFT.tasks()[:150]
    found = episodes("random", CRAFT, tasks)
    assert 0.02 < sum(bool(e.success) for e in found) / len(found) < 0.3
    again = episodes("random", CRAFT, tasks[:20])
    assert [s.text for e in again for s in e.steps] == [s.text for e in found[:20] for s in e.steps]
    assert {s.kind for e in found for s in e.steps} == {"act"}


def test_an_oracle_that_slips_fails_more_the_longer_its_plan() -> None:
    tasks = CRAFT.tasks()[:200]
    won = [bool(e.success) for e in episodes("oracle:0.85", CRAFT, tasks)]
    rate = {
        long: sum(w for w, t in zip(won, tasks, strict=True) if (t.meta["steps"] > 7) == long)
        / sum((t.meta["steps"] > 7) == long for t in tasks)
        for long in (False, True)
    }
    assert rate[False] > rate[True] + 0.1
    assert 0.1 < sum(won) / len(won) < 0.8


def test_it_shops_too(tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="the extra webshop is not installed")
    shop = load({"name": "webshop", **write_catalogue(tmp_path)})
    assert all(e.success for e in episodes("oracle", shop, shop.tasks()))
    lost = episodes("random", shop, shop.tasks())
    assert {s.status for e in lost for s in e.steps} == {"ok"}


def test_worlds_that_a_policy_cannot_play_are_named() -> None:
    class DarkEnvironment(CraftEnvironment):
        moves = None  # type: ignore[assignment]

    class Dark(CraftBenchmark):
        oracle = None  # type: ignore[assignment]

        def make_env(self, task: Task) -> CraftEnvironment:
            return DarkEnvironment(self.world.book, task.meta["goal"], 1, task.text)

    dark = Dark()
    for policy, said in (("oracle", "has no plan"), ("random", "lists no commands")):
        with pytest.raises(UserError, match=said):
            episodes(policy, dark, dark.tasks()[:1])
    for wrong in ("greedy", "random:0.5", "oracle:2", "oracle:x"):
        with pytest.raises(UserError, match="set model to one of: oracle, random, oracle:SHARE"):
            make_engine(agent(wrong))
    with pytest.raises(UserError, match="has no world"):
        asyncio.run(PolicyEngine("o", "oracle").generate(Request("x/1", None, (), 1)))
    assert agent_hash(agent("oracle")) != agent_hash(agent("random"))


def test_a_collection_of_policies(tmp_path: Path) -> None:
    config = tmp_path / "policies.yaml"
    config.write_text(
        "benchmarks: [craft]\nagents: [oracle, random]\nlabel: success\n"
        "collect: {limit: 40}\nheads: {folds: 2}\n"
    )
    run = ["collect", str(config), "--run-dir", str(tmp_path / "run"), "--on", "debug"]
    assert main(run) == 0
    won = {
        policy: RunDir(tmp_path / "run").read("episodes", "craft", policy)["success"].to_pylist()
        for policy in ("oracle", "random")
    }
    assert (len(won["oracle"]), sum(won["oracle"])) == (40, 40)
    assert sum(won["random"]) < 20
