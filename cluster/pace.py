"""The serial timed rerun: what one step of an agent takes when no other episode runs beside it.

Steps saved become time saved by this figure alone (the paper, Appendix K): the seconds that a
collection logs contain the waiting of episodes that shared an engine.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.engines import start_engine
from cluster.replica import Plan
from cluster.stages import use_threads
from sentinel.agent.loop import run_task
from sentinel.benchmarks import registry
from sentinel.benchmarks.base import Task
from sentinel.engine import Engine, Stop
from sentinel.errors import UserError
from sentinel.tables import OUTCOME_ENDS


@dataclass(frozen=True, slots=True)
class PaceItem:
    """Tasks of one agent to run one after the other; the first one warms up and is not timed."""

    plan: Plan
    tasks: tuple[Task, ...]
    threads: int


def measure(item: PaceItem) -> dict[str, Any]:
    """Wall seconds and steps of the timed episodes: `episodes`, `steps`, `seconds`, `threads`.

    Episodes without an outcome are left out. Raises UserError for what a user can mend (weights,
    data).
    """
    try:
        return asyncio.run(_measure(item))
    except Stop as stop:
        raise UserError(str(stop)) from stop


async def _measure(item: PaceItem) -> dict[str, Any]:
    plan = item.plan
    engine: Engine | None = None
    benchmark = registry.load(dict(plan.benchmark))
    episodes = steps = 0
    seconds = 0.0
    try:
        benchmark.prepare(Path(plan.cache))
        engine = await start_engine(plan.agent)
        use_threads(item.threads)
        for number, task in enumerate(item.tasks):
            start = time.perf_counter()
            episode = await run_task(
                engine,
                benchmark,
                task,
                agent=plan.agent["name"],
                max_tokens=plan.max_tokens,
                temperature=plan.temperature,
                seed=plan.seed,
            )
            took = time.perf_counter() - start
            if number and episode.end in OUTCOME_ENDS:
                episodes, steps, seconds = episodes + 1, steps + episode.turns, seconds + took
    finally:
        if engine is not None:
            await engine.close()
        benchmark.close()
    return {"episodes": episodes, "steps": steps, "seconds": seconds, "threads": item.threads}
