"""One replica: an engine, a benchmark and a journal in one process, running episodes as coroutines.

The same class is a Ray actor (`cluster.collect_actor`) and a plain object in a debug run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster import devices
from cluster.engines import start_engine
from cluster.files import no_space
from cluster.journal import Journal, JournalBroken
from cluster.metered import Metered, Pulse, TokenGate
from cluster.obey import Orders, Overseer
from cluster.provenance import note_template
from cluster.run_dir import RunDir
from cluster.span import lead_to_ray
from cluster.stages import use_threads
from sentinel import episodes
from sentinel.agent.loop import run_task
from sentinel.benchmarks import registry
from sentinel.benchmarks.base import Benchmark, Task
from sentinel.engine import EngineDied, Stop
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
    gpus: int = 0
    """Devices of each replica."""
    spans: bool = False
    """They are on several machines: the engine's workers see them, the replica does not."""
    tokens_in_flight: int | None = None
    """Limit per replica; None takes what the engine reports, or none."""
    orders: Orders | None = None
    """The frozen monitor that the episodes obey."""

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
    expected: float = 0.0
    """How long it is expected to take, in any unit: only the order of jobs depends on it."""


@dataclass(frozen=True, slots=True)
class Done:
    """What the driver hears of a finished episode."""

    episode_id: str
    end: str
    error: str | None
    turns: int
    generated_tokens: int
    cost_usd: float | None = None
    withheld: bool = False
    """A monitor kept the answer back."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica's process is."""

    host: str
    pid: int
    cores: tuple[int, ...]
    """Cores that the process may use."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A replica with a loaded plan. `limited`: it admits episodes by tokens in flight."""

    journal: str
    limited: bool


class Replica:
    """Runs episodes of one plan at a time; `open` changes the plan and keeps the process."""

    def __init__(self, number: int, threads: int, log_path: str | None = None) -> None:
        if log_path is not None:  # a process of its own: its log outlives it
            Path(log_path).parent.mkdir(parents=True, exist_ok=True)
            logging.basicConfig(filename=log_path, level=logging.INFO, format=LOG_FORMAT)
        self.number, self.threads = number, threads
        self._plan: Plan | None = None
        self._engine: Metered | None = None
        self._benchmark: Benchmark | None = None
        self._settings: dict[str, Any] = {}
        self._journal: Journal | None = None
        self._overseer: Overseer | None = None
        use_threads(threads)

    def __repr__(self) -> str:
        """What the dashboard calls it: its episodes are then the progress of the stage."""
        return STAGE

    async def place(self) -> Place:
        """Host, process and cores."""
        return Place(socket.gethostname(), os.getpid(), tuple(sorted(os.sched_getaffinity(0))))

    async def open(self, plan: Plan, life: int, cores: Sequence[int] = ()) -> Opened:
        """Load the engine and the benchmark and begin a new journal file.

        `cores` are for this replica alone among those of its host; empty leaves them to the
        system. Raises UserError for whatever of a plan a user can mend (weights, data, devices).
        """
        await self.close(keep_benchmark=plan.benchmark)
        if cores:  # before vLLM is imported: it reads this then
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
        agent = dict(plan.agent)
        if plan.spans:
            lead_to_ray()
            agent["distributed_executor_backend"] = "ray"
        else:
            devices.check(plan.gpus, plan.where)
        # Loading takes up to minutes: meanwhile this process must answer.
        await asyncio.to_thread(self._load_benchmark, plan)
        if plan.orders is not None:
            assert self._benchmark is not None
            how = plan.orders, agent, self._benchmark
            self._overseer = await asyncio.to_thread(Overseer, *how)
        engine = await start_engine(agent)
        use_threads(self.threads)  # again: the engine may have loaded torch
        limit = plan.tokens_in_flight or getattr(engine, "capacity_tokens", None)
        if getattr(engine, "encoder", None) is None:
            limit = None  # an API: nobody knows its prompts' tokens, and their memory is not ours
        self._engine = Metered(engine, TokenGate(limit, plan.max_tokens))
        # A file of its own for every life of every replica: nobody appends to another's.
        name = f"{time.time_ns():020d}-{self.number}-{life}-{os.getpid()}"
        run_dir = RunDir(plan.run_root)
        with no_space(run_dir.root):
            note_template(run_dir, plan.agent["name"], engine)
        self._journal = run_dir.journal(STAGE, plan.agent["name"], name, plan.benchmark["name"])
        self._plan = plan
        return Opened(str(self._journal.path), limit is not None)

    async def admit(self) -> None:
        """Wait until one more episode fits among the tokens in flight; `run` or `spare` follows."""
        if self.gate is not None:
            await self.gate.admit()

    async def spare(self) -> None:
        """The admitted episode does not come."""
        if self.gate is not None:
            self.gate.spare()

    @property
    def gate(self) -> TokenGate | None:
        """The gate of the open plan."""
        return None if self._engine is None else self._engine.gate

    async def pulse(self) -> Pulse | None:
        """The engine at work; None without a plan."""
        return None if self._engine is None else self._engine.pulse()

    async def run(self, job: Job) -> Done:
        """Run one episode and journal it.

        Raises UserError, EngineDied and Stop; a disk that takes no line is a UserError.
        """
        plan, engine, journal = self._plan, self._engine, self._journal
        benchmark = self._benchmark
        if plan is None or engine is None or journal is None or benchmark is None:
            raise RuntimeError("this replica has no open plan")
        started, clock = time.time(), time.perf_counter()
        engine.gate.begin(job.episode_id)
        watcher = None if self._overseer is None else self._overseer.watch(job.task)
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
                on_turn=None if watcher is None else watcher.on_turn,
                on_action=None if watcher is None else watcher.on_action,
            )
            if watcher is not None:
                episode = await watcher.closed(episode)
        except (UserError, EngineDied, Stop, asyncio.CancelledError):
            raise
        except Exception as error:  # a bug costs its episode, not the night
            log.exception("episode %s", job.episode_id)
            episode = failed_episode(plan, job, f"{type(error).__name__}: {error}")
        finally:
            engine.gate.leave(job.episode_id)
        episode = replace(
            episode,
            agent_hash=plan.agent_hash,
            started_at=started,
            seconds=time.perf_counter() - clock,
            worker=f"replica-{self.number}",
            host=socket.gethostname(),
            attempt=job.attempt,
        )
        try:
            journal.append(episodes.to_json_line(episode))
        except JournalBroken as error:
            raise UserError(
                str(error), "make room there and run again: what is finished is kept"
            ) from error
        return Done(
            job.episode_id,
            episode.end,
            episode.error,
            episode.turns,
            episode.generated_tokens,
            episode.cost_usd,
            withheld=episode.end == "answered"
            and episode.exit is not None
            and episode.exit.delivered is False,
        )

    def _load_benchmark(self, plan: Plan) -> None:
        if self._benchmark is None:
            benchmark = registry.load(dict(plan.benchmark))
            benchmark.prepare(Path(plan.cache))
            self._benchmark, self._settings = benchmark, dict(plan.benchmark)

    async def close(self, keep_benchmark: Mapping[str, Any] | None = None) -> None:
        """Sync the journal, end the engine and the sandbox workers (but of the same benchmark)."""
        journal, engine, benchmark = self._journal, self._engine, self._benchmark
        if self._overseer is not None:
            self._overseer.close()
        self._plan = self._journal = self._engine = self._overseer = None
        if benchmark is not None and keep_benchmark == self._settings:
            benchmark = None
        else:
            self._benchmark = None
        if journal is not None:
            try:
                journal.close()
            except JournalBroken as error:  # the episodes that were lost by it are not in the file
                log.error("%s", error)
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
