"""Collection: teams of replicas that pull the episodes of one agent after the other.

An episode that kills its worker when it runs alone becomes a row with the error; a replica that
keeps dying gets less to do at once, and is given up when it still dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cluster.collect_numbers import Numbers
from cluster.collect_remote import RayUnit
from cluster.collect_unit import LocalUnit, Unit
from cluster.journal import Journal
from cluster.placement import Reservation, Seats, Share
from cluster.progress import Progress
from cluster.replica import STAGE, Done, Job, Plan, failed_episode
from cluster.run_dir import RunDir
from cluster.scheduler import Puller, Room
from sentinel import episodes
from sentinel.engine import Stop
from sentinel.errors import UserError
from sentinel.tables import MONITORED

W = TypeVar("W")
ALL_FAILED = 16
"""When this many first episodes all end in an engine error, the cause is common: stop."""
WEDGED_SECONDS = 300.0
ASSEMBLE_SECONDS = 5.0


@dataclass(slots=True)
class Tally:
    """What one plan's collection did. `stopped`: why no more episodes were begun, if so."""

    episodes: int = 0
    failed: int = 0
    turns: int = 0
    generated_tokens: int = 0
    cost_usd: float | None = None
    by_replica: list[int] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    stopped: str | None = None
    ended: Counter[str] = field(default_factory=Counter)
    """Episodes that a monitor ended, by their end, and those whose answer it `withheld`."""


class Team:
    """The replicas of a collection; they stay alive from one agent to the next.

    Belongs to the event loop in which it is used first. `first` numbers its replicas.
    """

    def __init__(
        self,
        share: Share,
        concurrency: int,
        *,
        debug: bool = False,
        seats: Seats | None = None,
        first: int = 0,
        wedged_seconds: float = WEDGED_SECONDS,
    ) -> None:
        self.share, self.wedged_seconds = share, wedged_seconds
        self.tally = Tally()
        self.tallies = [self.tally]
        """Of every plan so far."""
        self.rooms: list[Room] = []
        self.units: list[Unit] = []
        self._plan: Plan | None = None
        self._places = Reservation(share)
        if debug:
            self.rooms = [Room(concurrency)]
            self.units = [LocalUnit(first, share.cpus, self._died)]
            return
        seats = seats or Seats()
        for index in range(share.replicas):
            self.rooms.append(Room(concurrency))
            self.units.append(
                RayUnit(first + index, index, self._places, seats, self.rooms[-1], self._died)
            )

    async def collect(self, plan: Plan, jobs: Sequence[Job], progress: Progress) -> Tally:
        """Run the jobs of one plan. Every job ends as a line in a journal, or this raises.

        Only a Stop of the engine leaves jobs over: then the tally says why.
        """
        plan = replace(plan, spans=self.share.spans)
        self._plan, self.tally = plan, Tally(by_replica=[0] * len(self.units))
        self.tallies.append(self.tally)
        for unit in self.units:
            unit.deaths.clear()
        watches = [asyncio.ensure_future(u.watch(self.wedged_seconds)) for u in self.units]
        try:
            await asyncio.gather(*(unit.open(plan) for unit in self.units))
            await self._assemble()
            await self._pull(plan, jobs, progress)
        except BaseException:
            # Episodes in flight must not run on beside the next agent's.
            await self.close()
            raise
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        self.tally.deaths = [d for unit in self.units for d in unit.deaths]
        return self.tally

    async def _assemble(self) -> None:
        """Wait for the replicas, but for the slow ones no longer than about twice the fastest.

        Else whoever is ready first could take all of a short run.
        """
        begun = time.monotonic()
        opening = {asyncio.ensure_future(unit.opened()) for unit in self.units}
        try:
            _, late = await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
            if late:
                await asyncio.wait(late, timeout=time.monotonic() - begun + ASSEMBLE_SECONDS)
        finally:
            for one in opening:
                one.cancel()

    async def close(self) -> None:
        """End the replicas and give their places back."""
        await asyncio.gather(*(unit.close() for unit in self.units))
        self._places.free()

    @property
    def busy(self) -> int:
        """Replicas with an episode in hand."""
        return sum(room.held > 0 for room in self.rooms)

    async def _pull(self, plan: Plan, jobs: Sequence[Job], progress: Progress) -> None:
        tally = self.tally
        attempts: dict[str, int] = {}
        puller = Puller(jobs, self.rooms, expected=lambda job: job.expected)
        with _driver_journal(plan) as journal:

            async def run(replica: int, job: Job) -> bool:
                tried = attempts.get(job.episode_id, 0)
                unit, room = self.units[replica], self.rooms[replica]
                alone = room.held == 1 and room.limit == 1
                try:
                    done = await unit.run(replace(job, attempt=tried + 1))
                except Stop as stop:
                    tally.stopped = " ".join(str(stop).split()) or "the engine stopped"
                    puller.stop()
                    return False
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

            units = self.units
            await puller.run(run, lambda i: units[i].ready(), lambda i: units[i].spare())
        if puller.left:
            raise next(unit.lost for unit in units if unit.lost is not None)

    def _died(self, cause: str) -> None:
        if self._plan is not None:
            note_death(self._plan, cause)


def note_death(plan: Plan, cause: str) -> None:
    """Name the cause where `sentinel status` finds it, also when the run itself dies later."""
    with contextlib.suppress(OSError):
        RunDir(plan.run_root).metric(
            STAGE,
            event="death",
            benchmark=plan.benchmark["name"],
            agent=plan.agent["name"],
            cause=cause,
        )


async def work_through(
    teams: Sequence[Team],
    work: Sequence[W],
    collect: Callable[[Team, W], Awaitable[None]],
    progress: Progress,
) -> None:
    """Every team takes the next piece of work when it is free; an exception ends all.

    Teams are closed at the end.
    """
    numbers = Numbers(progress)
    ticking = asyncio.ensure_future(_tick(progress, numbers, teams))
    waiting = iter(work)

    async def lane(team: Team) -> None:
        for piece in waiting:
            await collect(team, piece)

    try:
        async with asyncio.TaskGroup() as group:
            for team in teams:
                group.create_task(lane(team))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        ticking.cancel()
        numbers.read(teams)
        await asyncio.gather(*(team.close() for team in teams))


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
    tally.ended.update([done.end] if done.end in MONITORED else ())
    tally.ended.update(["withheld"] if done.withheld else ())
    if done.cost_usd is not None:
        tally.cost_usd = (tally.cost_usd or 0.0) + done.cost_usd
    tally.by_replica[replica] += 1


async def _tick(progress: Progress, numbers: Numbers, teams: Sequence[Team]) -> None:
    while True:
        await asyncio.sleep(1.0)
        numbers.read(teams)
        progress.tick()
