"""Collection: replicas in Ray actors (or one in this process) that pull episodes, and their deaths.

A dead actor is started again, its journal is read, and only the episodes that were in flight run
again. A process that keeps dying gets less to do at once; an episode that kills its worker when it
runs alone becomes a row with the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cluster.journal import Journal, Reader
from cluster.pool import Cluster, failure
from cluster.progress import Progress
from cluster.replica import STAGE, Done, Job, Plan, Replica, failed_episode
from cluster.run_dir import RunDir
from cluster.scheduler import Puller, Room
from sentinel import episodes
from sentinel.errors import UserError

log = logging.getLogger(__name__)
BARREN_LIVES = 3
"""Deaths in a row without a finished episode after which a replica is given up."""
ALL_FAILED = 16
"""When this many first episodes all end in an engine error, the cause is common: stop."""
SPARE_CALLS = 4


class Unit(Protocol):
    """A replica as the driver sees it."""

    pid: int | None

    async def open(self, plan: Plan) -> None:
        """Load a plan. Raises UserError."""
        ...

    async def run(self, job: Job) -> Done | None:
        """The finished episode; None when the replica died under it and it is to be run again."""
        ...

    async def close(self) -> None:
        """Sync what is written and end."""
        ...


class LocalUnit:
    """A replica in this process (`debug`)."""

    def __init__(self, number: int, threads: int) -> None:
        self.pid: int | None = None
        self._replica = Replica(number, threads)

    async def open(self, plan: Plan) -> None:
        """Load the plan here."""
        self.pid, _ = await self._replica.open(plan, life=1)

    async def run(self, job: Job) -> Done | None:
        """Run the episode here."""
        return await self._replica.run(job)

    async def close(self) -> None:
        """End engine and sandbox."""
        await self._replica.close()


class RayUnit:
    """A replica in an actor, started again when it dies."""

    def __init__(self, number: int, cpus: int, gpus: float, concurrency: int, room: Room) -> None:
        self.number, self.cpus, self.gpus = number, cpus, gpus
        self.concurrency, self.room = concurrency, room
        self.pid: int | None = None
        self.deaths: list[str] = []
        self.life = 0
        self._actor: Any = None
        self._journal: Path | None = None
        self._plan: Plan | None = None
        self._finished = self._barren = 0
        self._lock = asyncio.Lock()
        self._recovered: set[str] = set()

    async def open(self, plan: Plan) -> None:
        """Load the plan in the actor, started if need be. Raises UserError."""
        async with self._lock:
            self._plan = plan
            self._barren = 0
            await self._start()

    async def run(self, job: Job) -> Done | None:
        """Run the episode in the actor; None when the actor died with it."""
        import ray

        actor, life = self._actor, self.life
        try:
            done: Done = await actor.run.remote(job)
        except ray.exceptions.RayTaskError as error:
            raise _mendable(error) from None
        except ray.exceptions.RayError as error:
            await self._died(life, error)
            if job.episode_id in self._recovered:  # it was written before the end
                return Done(job.episode_id, "recovered", None, 0, 0)
            return None
        self._finished += 1
        return done

    async def close(self) -> None:
        """End the actor; what it wrote is synced first, if it still answers."""
        import ray

        actor, self._actor = self._actor, None
        if actor is None:
            return
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(_answer(actor.close.remote()), timeout=10)
        ray.kill(actor, no_restart=True)

    async def _start(self) -> None:
        """Open the plan, in a new actor where there is none; called under the lock."""
        import ray

        while True:
            if self._actor is None:
                self.life += 1
                options = {
                    "num_cpus": self.cpus,
                    "num_gpus": self.gpus,
                    "max_concurrency": self.concurrency + SPARE_CALLS,
                    "max_restarts": 0,  # the driver restarts it: it must read the journal first
                }
                name = f"{STAGE}-{self.number}"
                log_path = RunDir(self._plan.run_root).logs / f"{name}.log" if self._plan else None
                cls = ray.remote(Replica).options(**options)
                self._actor = cls.remote(self.number, self.cpus, log_path and str(log_path))
                log.info("%s life %d", name, self.life)
            self._finished = 0
            try:
                opened = self._actor.open.remote(self._plan, self.life)
                self.pid, path = await _answer(opened)
            except ray.exceptions.RayTaskError as error:
                raise _mendable(error) from None
            except ray.exceptions.RayError as error:
                self._bury(error)
                continue
            self._journal = Path(path)
            return

    async def _died(self, life: int, error: Exception) -> None:
        """The first to notice a death starts the next life; the others wait for it."""
        async with self._lock:
            if life == self.life and self._actor is not None:
                self._bury(error)
                await self._start()

    def _bury(self, error: Exception) -> None:
        import ray

        item = failure(error)
        self.deaths.append(item.cause)
        log.warning("replica %d of %s: %s", self.number, self._where, item.cause)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actor, no_restart=True)  # perhaps it is only out of reach
        self._actor = None
        if self._journal is not None:
            self._recovered |= finished_ids([self._journal])
        self._barren = 0 if self._finished else self._barren + 1
        self.room.shrink()
        # A replica that dies while it still shrinks may yet find a size at which it lives.
        if self._barren >= BARREN_LIVES and (self._journal is None or self.room.limit == 1):
            raise UserError(
                f"replica {self.number} of {self._where} died {len(self.deaths)} times: "
                f"{item.cause}",
                "lower collect.concurrency or collect.workers, or try --on debug to see the error",
            )

    @property
    def _where(self) -> str:
        return "?" if self._plan is None else self._plan.where


@dataclass(slots=True)
class Tally:
    """What one plan's collection did."""

    episodes: int = 0
    failed: int = 0
    turns: int = 0
    generated_tokens: int = 0
    by_replica: list[int] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)


class Team:
    """The replicas of a collection; they stay alive from one agent to the next."""

    def __init__(self, cluster: Cluster, workers: int, concurrency: int, gpus: float = 0) -> None:
        self.rooms: list[Room] = []
        self.units: list[Unit] = []
        self._runner = asyncio.Runner()  # one loop for all agents: locks and engines belong to it
        if cluster.debug:
            self.rooms = [Room(concurrency)]
            self.units = [LocalUnit(0, cluster.cpus)]
            return
        if gpus > cluster.gpus:
            raise UserError(
                f"the agent wants {gpus:g} GPUs, the cluster has {cluster.gpus}",
                "set device: cpu in the agent's config, or run on a machine with GPUs",
            )
        workers = max(1, min(workers, cluster.cpus))
        if gpus:
            workers = max(1, min(workers, int(cluster.gpus / gpus)))
        cpus = max(1, cluster.cpus // workers)
        for number in range(workers):
            self.rooms.append(Room(concurrency))
            self.units.append(RayUnit(number, cpus, gpus, concurrency, self.rooms[-1]))

    def collect(self, plan: Plan, jobs: Sequence[Job], progress: Progress) -> Tally:
        """Run the jobs of one plan. Every job ends as a line in a journal, or this raises."""
        try:
            return self._runner.run(self._collect(plan, jobs, progress))
        except BaseException:
            # Episodes in flight must not run on beside the next agent's.
            self._runner.run(self._close_units())
            raise

    def close(self) -> None:
        """End the replicas."""
        self._runner.run(self._close_units())
        self._runner.close()

    async def _close_units(self) -> None:
        await asyncio.gather(*(unit.close() for unit in self.units))

    async def _collect(self, plan: Plan, jobs: Sequence[Job], progress: Progress) -> Tally:
        ticking = asyncio.ensure_future(_tick(progress))
        try:
            await asyncio.gather(*(unit.open(plan) for unit in self.units))
            return await self._pull(plan, jobs, progress)
        finally:
            ticking.cancel()

    async def _pull(self, plan: Plan, jobs: Sequence[Job], progress: Progress) -> Tally:
        tally = Tally(by_replica=[0] * len(self.units))
        attempts: dict[str, int] = {}
        with _driver_journal(plan) as journal:

            async def run(replica: int, job: Job) -> bool:
                tried = attempts.get(job.episode_id, 0)
                unit, room = self.units[replica], self.rooms[replica]
                alone = room.held == 1 and room.limit == 1
                done = await unit.run(replace(job, attempt=tried + 1))
                if done is None:
                    attempts[job.episode_id] = tried + 1
                    if not alone or tried < 2:
                        return False
                    done = _give_up(plan, job, journal)
                _count(tally, done, replica)
                progress.advance(1, failed=int(done.end == "engine_error"))
                if tally.episodes == tally.failed >= min(ALL_FAILED, len(jobs)):
                    raise UserError(
                        f"the first {tally.failed} episodes of {plan.where} all failed: "
                        f"{done.error}",
                        "mend the cause and run again; finished work of other agents is kept",
                    )
                return True

            await Puller(jobs, self.rooms).run(run)
        tally.deaths = [d for unit in self.units for d in getattr(unit, "deaths", [])]
        return tally


@contextmanager
def open_team(cluster: Cluster, workers: int, concurrency: int, gpus: float = 0) -> Iterator[Team]:
    """Replicas for the time of a block."""
    team = Team(cluster, workers, concurrency, gpus)
    try:
        yield team
    finally:
        team.close()


def finished_ids(paths: Sequence[Path]) -> set[str]:
    """Ids of the whole episodes in some journals."""
    reader = Reader(episodes.from_json_line, lambda e: e.episode_id)
    return {e.episode_id for e in reader.read(p for p in paths if p.exists())}


def _give_up(plan: Plan, job: Job, journal: Journal) -> Done:
    error = "the worker process died each time this episode ran, the last time with it alone"
    journal.append(episodes.to_json_line(failed_episode(plan, job, error)))
    return Done(job.episode_id, "engine_error", error, 0, 0)


@contextmanager
def _driver_journal(plan: Plan) -> Iterator[Journal]:
    name = f"{time.time_ns():020d}-driver-{os.getpid()}"
    place = plan.agent["name"], name, plan.benchmark["name"]
    with RunDir(plan.run_root).journal(STAGE, *place) as journal:
        yield journal


def _count(tally: Tally, done: Done, replica: int) -> None:
    tally.episodes += 1
    tally.failed += int(done.end == "engine_error")
    tally.turns += done.turns
    tally.generated_tokens += done.generated_tokens
    tally.by_replica[replica] += 1


async def _tick(progress: Progress) -> None:
    while True:
        await asyncio.sleep(1.0)
        progress.tick()


def _mendable(error: Exception) -> BaseException:
    """The UserError of a worker as it was; a bug with the worker's traceback."""
    original = failure(error).error
    return original if isinstance(original, UserError) else error


async def _answer(reference: Any) -> Any:
    return await reference
