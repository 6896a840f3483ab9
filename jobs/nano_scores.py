"""What an embedded agent does on a set of questions: the numbers that its RECIPE.json records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sentinel.benchmarks.base import Benchmark, Task
    from sentinel.engine import Engine
    from sentinel.episodes import Episode

CONCURRENCY = 64
COMMAND_TOKENS = 48
"""Generated tokens per turn where actions are commands, as in the agents' configs: twenty turns
then always fit the window."""


def play(engine: Engine, benchmark: Benchmark, tasks: Sequence[Task]) -> list[Episode]:
    """One episode per task, in task order."""
    from sentinel.agent.loop import run_task

    own = getattr(benchmark, "reply_tokens", 256)
    limit = own if benchmark.dialect.is_sql else COMMAND_TOKENS

    async def all_of_them() -> list[Episode]:
        room = asyncio.Semaphore(CONCURRENCY)

        async def one(task: Task) -> Episode:
            async with room:
                return await run_task(engine, benchmark, task, agent="nano", max_tokens=limit)

        return await asyncio.gather(*(one(t) for t in tasks))

    return asyncio.run(all_of_them())


def scores(
    episodes: Sequence[Episode], tasks: Sequence[Task], correct: Sequence[bool | None]
) -> dict[str, Any]:
    """Shares and means over episodes (None where there is nothing to divide by).

    `accuracy` is of delivered answers (those to unanswerable questions are wrong), `fabricated` of
    unanswerable questions, `gave_up` of answerable ones; `lp_auroc` is the better of lp_mean and
    lp_min at telling right from wrong delivered answers. Where tasks have no notion of an answer
    (goals): `success` and `cap` of all episodes, and `lp_auroc` reads the first two turns only,
    because later ones tell by their number.
    """
    if tasks and all(t.answerable is None for t in tasks):
        return _goal_scores(episodes, np.array([bool(c) for c in correct]))
    answered = np.array([e.end == "answered" for e in episodes])
    answerable = np.array([bool(t.answerable) for t in tasks])
    right = np.array([bool(c) for c in correct])
    abstained = np.array([e.end == "abstained" for e in episodes])
    return {
        "questions": len(tasks),
        "accuracy": _share(right, answered),
        "fabricated": _share(answered, ~answerable),
        "gave_up": _share(abstained, answerable),
        "turns": round(float(np.mean([e.turns for e in episodes])), 3),
        "lp_auroc": _lp_auroc([e for e in episodes if e.end == "answered"], right[answered]),
    }


def _goal_scores(episodes: Sequence[Episode], right: np.ndarray) -> dict[str, Any]:
    every = np.ones(len(episodes), dtype=bool)
    return {
        "tasks": len(episodes),
        "success": _share(right, every),
        "cap": _share(np.array([e.end == "cap" for e in episodes]), every),
        "turns": round(float(np.mean([e.turns for e in episodes])), 3),
        "lp_auroc": _lp_auroc(episodes, right, turns=2),
    }


def outcomes(episodes: Sequence[Episode], correct: Sequence[bool | None]) -> str:
    """One letter per episode: r answered right, w answered wrong, n abstained, c cap, x no outcome.

    Kept beside the weights, so that a test can hold them to what they did.
    """
    letters = {"abstained": "n", "cap": "c"}
    return "".join(
        ("r" if right else "w") if e.end == "answered" else letters.get(e.end, "x")
        for e, right in zip(episodes, correct, strict=True)
    )


def label(benchmark: Any, episodes: Sequence[Episode], tasks: Sequence[Task]) -> list[bool | None]:
    """Typed equivalence of each episode with its task's gold; the world's verdict without SQL."""
    from sentinel.labels import SUCCESS, Gold, is_ordered, judge

    if not hasattr(benchmark, "sandbox"):
        return [judge(SUCCESS, e, None, None).correct for e in episodes]
    pool = benchmark.sandbox()
    verdicts = []
    for episode, task in zip(episodes, tasks, strict=True):
        gold = Gold(pool.query(task.gold), is_ordered(task.gold)) if task.gold else None
        verdicts.append(judge("typed", episode, task.answerable, gold).correct)
    return verdicts


def _share(of: np.ndarray, among: np.ndarray) -> float | None:
    return round(float(of[among].mean()), 4) if among.any() else None


def _lp_auroc(
    episodes: Sequence[Episode], right: np.ndarray, turns: int | None = None
) -> float | None:
    from sklearn.metrics import roc_auc_score

    if right.all() or not right.any():
        return None
    read = [[t.logprobs for t in e.steps[:turns] if t.logprobs] for e in episodes]
    mean = [np.mean([np.mean(turn) for turn in logprobs]) for logprobs in read]
    least = [min(min(turn) for turn in logprobs) for logprobs in read]
    return round(max(float(roc_auc_score(right, x)) for x in (mean, least)), 4)
