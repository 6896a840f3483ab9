"""A pilot: a few episodes of one agent, run together, and what they cost.

The pilot runs in a process of its own, so that the memory it reports is the agent's and no
leftover of another one. What an API bills for it is paid from the run's budget.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cluster.engines import start_engine
from cluster.memory import PeakMemory
from cluster.replica import Plan
from cluster.stages import use_threads
from sentinel.agent.loop import run_task
from sentinel.benchmarks import registry
from sentinel.benchmarks.base import Task
from sentinel.engine import Engine, EngineDied, Stop
from sentinel.episodes import Episode, render
from sentinel.errors import UserError
from sentinel.tables import OUTCOME_ENDS


@dataclass(frozen=True, slots=True)
class PilotItem:
    """Tasks of one agent to run at once, `concurrency` in flight, on `threads` CPUs."""

    plan: Plan
    tasks: tuple[Task, ...]
    concurrency: int
    threads: int


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean per episode and its standard error (None with fewer than two episodes)."""

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Of at least one value."""
        spread = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), spread and spread / math.sqrt(len(values)))


@dataclass(frozen=True, slots=True)
class Pilot:
    """What n episodes of one agent cost.

    `seconds` is their wall time together on one replica, `load_seconds` that of the engine before
    them, `peak_mb` the process tree's memory. `dollars` (per episode) is None for a local engine.
    """

    episodes: int
    failed: int
    seconds: float
    load_seconds: float
    peak_mb: float
    turns: Mean
    prompt_tokens: Mean
    generated_tokens: Mean
    dollars: Mean | None
    first_error: str | None = None
    prefix_chars: tuple[int, ...] = ()
    """Characters of every rendered prefix, t = 0…T, of the episodes: what text heads would read."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


def run(item: PilotItem) -> Pilot:
    """Run the pilot in a child process.

    Raises UserError for what a user can mend, for a pilot without any outcome, and when the child
    dies (out of memory).
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(measure, item).result()
        except BrokenProcessPool as error:
            raise UserError(
                f"the pilot of {item.plan.where} was killed, probably for memory",
                "give it a machine with more memory, or a smaller context_window",
            ) from error


def measure(item: PilotItem) -> Pilot:
    """Run the pilot in this process."""
    with PeakMemory() as memory:
        load, seconds, episodes = asyncio.run(_play(item))
    found = summarise(episodes, seconds, load, memory.mb, item.plan.where)
    return replace(found, prefix_chars=tuple(_prefix_chars(item, episodes)))


def _prefix_chars(item: PilotItem, episodes: Sequence[Episode]) -> Iterator[int]:
    dialect = registry.load(dict(item.plan.benchmark)).dialect
    texts = {task.task_id: task.text for task in item.tasks}
    for e in episodes:
        if e.end in OUTCOME_ENDS:
            for t in range(len(e.steps) + 1):
                yield len(render(texts[e.task_id], e.steps, t, e, dialect))


async def _play(item: PilotItem) -> tuple[float, float, list[Episode]]:
    plan = item.plan
    gate = asyncio.Semaphore(item.concurrency)
    benchmark = registry.load(dict(plan.benchmark))
    engine: Engine | None = None
    stops: list[str] = []
    start = time.perf_counter()
    try:
        benchmark.prepare(Path(plan.cache))
        engine = await start_engine(plan.agent)
        use_threads(item.threads)

        async def one(task: Task) -> Episode | None:
            async with gate:
                try:
                    return await run_task(
                        engine,
                        benchmark,
                        task,
                        agent=plan.agent["name"],
                        max_tokens=plan.max_tokens,
                        temperature=plan.temperature,
                        seed=plan.seed,
                    )
                except Stop as stop:  # the budget: those in flight still finish
                    stops.append(str(stop))
                    return None

        await one(item.tasks[0])  # warms up; its time is the engine's
        loaded = time.perf_counter()
        played = await asyncio.gather(*(one(t) for t in item.tasks[1:]))
        seconds = time.perf_counter() - loaded
        episodes = [episode for episode in played if episode is not None]
        if stops and not episodes:
            raise UserError(stops[0])
        return loaded - start, seconds, episodes
    except EngineDied as error:
        raise UserError(
            f"the engine of {plan.where} died in its pilot: {error}", "sentinel doctor CONFIG"
        ) from error
    finally:
        if engine is not None:
            await engine.close()
        benchmark.close()


def summarise(
    episodes: Sequence[Episode], seconds: float, load: float, peak_mb: float, where: str
) -> Pilot:
    """The figures of finished episodes. Raises UserError when none had an outcome."""
    good = [e for e in episodes if e.end in OUTCOME_ENDS]
    errors = [e.error or e.end for e in episodes if e.end not in OUTCOME_ENDS]
    if not good:
        raise UserError(
            f"no pilot episode of {where} had an outcome: {errors[0] if errors else 'none ran'}",
            "mend the agent: sentinel doctor CONFIG",
        )
    paid = [e.cost_usd for e in good if e.cost_usd is not None]
    return Pilot(
        episodes=len(good),
        failed=len(errors),
        seconds=seconds,
        load_seconds=load,
        peak_mb=peak_mb,
        turns=Mean.of([e.turns for e in good]),
        prompt_tokens=Mean.of([e.prompt_tokens for e in good]),
        generated_tokens=Mean.of([e.generated_tokens for e in good]),
        dollars=Mean.of(paid) if paid else None,
        first_error=errors[0] if errors else None,
    )
