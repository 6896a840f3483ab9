"""One replica: an engine, a benchmark and a journal in one process, running episodes as coroutines.

The same class is a Ray actor (`cluster.collect_actor`) and a plain object in a debug run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.engines import make_engine
from cluster.journal import Journal
from cluster.run_dir import RunDir
from cluster.stages import use_threads
from sentinel import episodes
from sentinel.agent.loop import run_task
from sentinel.benchmarks import registry
from sentinel.benchmarks.base import Benchmark, Task
from sentinel.engine import Engine
from sentinel.errors import UserError

log = logging.getLogger(__name__)
STAGE = "collect"
LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replica needs to know to run the episodes of one agent on one benchmark."""

    run_root: str
    cache: str
    benchmark: Mapping[str, Any]
    agent: Mapping[str, Any]
    agent_hash: str
    max_tokens: int
    temperature: float
    seed: int

    @property
    def where(self) -> str:
        """`benchmark/agent`."""
        return f"{self.benchmark['name']}/{self.agent['name']}"


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to run. The task travels along: no worker draws a thousand questions again."""

    episode_id: str
    task: Task
    rollout: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Done:
    """What the driver hears of a finished episode."""

    episode_id: str
    end: str
    error: str | None
    turns: int
    generated_tokens: int


class Replica:
    """Runs episodes of one plan at a time; `open` changes the plan and keeps the process."""

    def __init__(self, number: int, threads: int, log_path: str | None = None) -> None:
        if log_path is not None:  # a process of its own: its log outlives it
            Path(log_path).parent.mkdir(parents=True, exist_ok=True)
            logging.basicConfig(filename=log_path, level=logging.INFO, format=LOG_FORMAT)
        self.number, self.threads = number, threads
        self._plan: Plan | None = None
        self._engine: Engine | None = None
        self._benchmark: Benchmark | None = None
        self._settings: dict[str, Any] = {}
        self._journal: Journal | None = None
        use_threads(threads)

    async def open(self, plan: Plan, life: int) -> tuple[int, str]:
        """Load the engine and the benchmark and begin a new journal file; returns (pid, its path).

        Raises UserError for whatever of a plan a user can mend (weights, data).
        """
        await self.close(keep_benchmark=plan.benchmark)
        run_dir = RunDir(plan.run_root)
        if self._benchmark is None:
            benchmark = registry.load(dict(plan.benchmark))
            benchmark.prepare(Path(plan.cache))
            self._benchmark, self._settings = benchmark, dict(plan.benchmark)
        self._engine = make_engine(plan.agent)
        use_threads(self.threads)  # again: the engine may have loaded torch
        # A file of its own for every life of every replica: nobody appends to another's.
        name = f"{time.time_ns():020d}-{self.number}-{life}-{os.getpid()}"
        self._journal = run_dir.journal(STAGE, plan.agent["name"], name, plan.benchmark["name"])
        self._plan = plan
        return os.getpid(), str(self._journal.path)

    async def run(self, job: Job) -> Done:
        """Run one episode and journal it. Only a UserError or a broken disk raises."""
        plan, engine, journal = self._plan, self._engine, self._journal
        benchmark = self._benchmark
        if plan is None or engine is None or journal is None or benchmark is None:
            raise RuntimeError("this replica has no open plan")
        started, clock = time.time(), time.perf_counter()
        try:
            episode = await run_task(
                engine,
                benchmark,
                job.task,
                agent=plan.agent["name"],
                rollout=job.rollout,
                max_tokens=plan.max_tokens,
                temperature=plan.temperature,
                seed=plan.seed,
            )
        except (UserError, OSError, asyncio.CancelledError):
            raise
        except Exception as error:  # a bug costs its episode, not the night
            log.exception("episode %s", job.episode_id)
            episode = failed_episode(plan, job, f"{type(error).__name__}: {error}")
        episode = replace(
            episode,
            agent_hash=plan.agent_hash,
            started_at=started,
            seconds=time.perf_counter() - clock,
            worker=f"replica-{self.number}",
            host=socket.gethostname(),
            attempt=job.attempt,
        )
        journal.append(episodes.to_json_line(episode))
        return Done(
            job.episode_id, episode.end, episode.error, episode.turns, episode.generated_tokens
        )

    async def close(self, keep_benchmark: Mapping[str, Any] | None = None) -> None:
        """Sync the journal, end the engine and the sandbox workers (but of the same benchmark)."""
        journal, engine, benchmark = self._journal, self._engine, self._benchmark
        self._plan = self._journal = self._engine = None
        if benchmark is not None and keep_benchmark == self._settings:
            benchmark = None
        else:
            self._benchmark = None
        if journal is not None:
            journal.close()
        if engine is not None:
            await engine.close()
        if benchmark is not None:
            benchmark.close()


def failed_episode(plan: Plan, job: Job, error: str) -> episodes.Episode:
    """A row for an episode that could not be run at all: an error is never a lost row."""
    return episodes.Episode(
        benchmark=plan.benchmark["name"],
        agent=plan.agent["name"],
        episode_id=job.episode_id,
        task_id=job.task.task_id,
        group=job.task.group,
        rollout=job.rollout,
        end="engine_error",
        turns=0,
        error=error[:2000],
        agent_hash=plan.agent_hash,
        attempt=job.attempt,
    )
