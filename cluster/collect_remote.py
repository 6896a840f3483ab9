"""A replica in a Ray actor, as the driver of a collection sees it.

A dead actor is started again, its journal is read, and only the episodes that were in flight run
again, at once and by whoever has room. One that answers no more, or whose engine makes no token
any more, is killed and counts as dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.collect_unit import (
    BARREN_LIVES,
    PULSE_SECONDS,
    answer,
    finished_ids,
    given_up,
    mendable,
    period,
)
from cluster.metered import Pulse
from cluster.placement import Reservation, Seats
from cluster.pool import failure
from cluster.replica import STAGE, Done, Job, Opened, Place, Plan, Replica
from cluster.run_dir import RunDir
from cluster.scheduler import Room
from sentinel.engine import EngineDied, Stop
from sentinel.errors import UserError

log = logging.getLogger(__name__)
UNREACHABLE_SECONDS = 60.0
"""How long Ray is asked why a worker is out of reach: it takes that long to miss a node."""
SPARE_CALLS = 4
"""Calls that a replica answers beside its episodes (pulse, admission)."""


class RayUnit:
    """A replica in an actor, started again when it dies.

    Args:
        number: names the replica, its log and its journals.
        index: its place in the team's reservation.
        room: shrunk by each death.
        died: told the cause of every death at once.
    """

    def __init__(
        self,
        number: int,
        index: int,
        places: Reservation,
        seats: Seats,
        room: Room,
        died: Callable[[str], None],
    ) -> None:
        self.number, self.index, self.room = number, index, room
        self.deaths: list[str] = []
        self.lost: Exception | None = None
        self.last: Pulse | None = None
        self.life = 0
        self._places, self._seats, self._tell = places, seats, died
        self._actor: Any = None
        self._place: Place | None = None
        self._process: Any = None
        self._opened = Opened("", False)
        self._plan: Plan | None = None
        self._finished = self._barren = 0
        self._answering = asyncio.Event()
        self._restart: asyncio.Task[None] | None = None
        self._recovered: set[str] = set()

    async def open(self, plan: Plan) -> None:
        """Begin to load the plan in the actor, started if need be.

        Raises UserError when there is no place for the team's replicas.
        """
        await self._stop_restart()
        self._answering.clear()
        self._plan, self._barren, self.lost = plan, 0, None
        await self._places.take(plan.where)
        self._restart = asyncio.ensure_future(self._start())

    async def opened(self) -> None:
        """Wait until the actor answers or is given up."""
        await self._answering.wait()

    async def ready(self) -> bool:
        """Wait for this life or the next one, and for room among its tokens."""
        import ray

        while True:
            await self._answering.wait()
            if isinstance(self.lost, UserError):
                return False
            if self.lost is not None:
                raise self.lost
            if not self._opened.limited:
                return True
            actor, life = self._actor, self.life
            try:
                await answer(unseen(actor.admit).remote())
                return True
            except ray.exceptions.RayError as error:
                self._died(life, await why_gone(actor, error))

    def spare(self) -> None:
        """Give the admission back."""
        if self._opened.limited and self._actor is not None:
            unseen(self._actor.spare).remote()

    async def run(self, job: Job) -> Done | None:
        """Run the episode in the actor; None when the actor died with it."""
        import ray

        actor, life = self._actor, self.life
        if actor is None or not self._answering.is_set():
            return None
        try:
            done: Done = await answer(actor.run.options(name=STAGE).remote(job))
        except ray.exceptions.RayTaskError as error:
            original = failure(error).error
            if isinstance(original, Stop):
                raise original from None
            if not isinstance(original, EngineDied):
                raise mendable(error) from None
            self._died(life, f"the engine died: {original}")
            return None
        except ray.exceptions.RayError as error:
            self._died(life, await why_gone(actor, error))
            if job.episode_id in self._recovered:  # it was written before the end
                return Done(job.episode_id, "recovered", None, 0, 0)
            return None
        self._finished += 1
        return done

    async def watch(self, wedged_seconds: float) -> None:
        """Kill the replica when it, or its engine, hangs."""
        import ray

        while True:
            await asyncio.sleep(period(wedged_seconds))
            actor, life = self._actor, self.life
            if actor is None or not self._answering.is_set():
                continue
            try:
                # Not wait_for: it would cancel the call, and a cancelled call says nothing.
                pulse = asyncio.ensure_future(answer(unseen(actor.pulse).remote()))
                asked = time.monotonic()
                while not pulse.done() and time.monotonic() - asked < wedged_seconds:
                    await asyncio.wait({pulse}, timeout=period(wedged_seconds))
                if not pulse.done():
                    pulse.cancel()
                    self._died(life, f"the worker hangs: no answer for {wedged_seconds:g} s")
                    continue
                self.last = pulse.result()
            except ray.exceptions.RayError as error:
                self._died(life, await why_gone(actor, error))
                continue
            if self.last is not None and self.last.stalled_seconds > wedged_seconds:
                waiting, stalled = self.last.requests, self.last.stalled_seconds
                self._died(
                    life,
                    f"the engine hangs: no token for {stalled:.0f} s, {waiting} requests waited",
                )

    async def close(self) -> None:
        """End the actor; what it wrote is synced first, if it still answers."""
        import ray

        await self._stop_restart()
        self._answering.clear()
        actor, self._actor = self._actor, None
        self._seats.leave(self.number)
        if actor is None:
            return
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(answer(unseen(actor.close).remote()), timeout=10)
        ray.kill(actor, no_restart=True)

    async def _start(self) -> None:
        """Open the plan, in a new actor where there is none; ends with `lost` or an answer."""
        assert self._plan is not None
        try:
            while self.lost is None and not await self._try_open(self._plan):
                pass
        except Exception as error:  # `ready` raises it
            self.lost = error
        if self.lost is not None:
            log.warning(
                "replica %d of %s is given up: %s", self.number, self._plan.where, self.lost
            )
        self._answering.set()

    async def _try_open(self, plan: Plan) -> bool:
        import ray

        if self._actor is None:
            self._create(plan)
        self._finished = 0
        try:
            if self._place is None:
                self._place = await self._find()
            cores: Sequence[int] = ()
            if not plan.gpus:
                place, n = self._place, self._places.share.cpus
                cores = self._seats.take(place.host, self.number, place.cores, n)
            self._opened = await answer(unseen(self._actor.open).remote(plan, self.life, cores))
        except ray.exceptions.RayTaskError as error:
            original = failure(error).error
            if not isinstance(original, EngineDied):
                raise mendable(error) from None
            self._bury(f"the engine died: {original}")
            return False
        except ray.exceptions.RayError as error:
            self._bury(await why_gone(self._actor, error))
            return False
        return True

    def _create(self, plan: Plan) -> None:
        import ray

        self.life += 1
        self._place = self._process = None
        options = self._places.options(self.index) | {
            "max_concurrency": self.room.most + SPARE_CALLS,
            "max_restarts": 0,  # the driver restarts it: it must read the journal first
        }
        name = f"{STAGE}-{self.number}"
        log_path = RunDir(plan.run_root).logs / f"{name}.log"
        arguments = self.number, self._places.share.cpus, str(log_path)
        remote = ray.remote(Replica)
        try:
            self._actor = remote.options(**options, name=name).remote(*arguments)
        except ValueError:  # one of that name is only just dying
            other = f"{name}-{secrets.token_hex(3)}"
            self._actor = remote.options(**options, name=other).remote(*arguments)
        log.info("%s life %d", name, self.life)

    async def _find(self) -> Place:
        found: Place = await answer(unseen(self._actor.place).remote())
        if found.host == socket.gethostname():
            import psutil

            with contextlib.suppress(psutil.Error):
                process = psutil.Process(found.pid)
                if any("ray::" in word for word in process.cmdline()):
                    self._process = process
        return found

    def _died(self, life: int, cause: str) -> None:
        """The first to notice a death begins the next life."""
        if life != self.life or not self._answering.is_set() or self.lost is not None:
            return
        self._answering.clear()
        self._bury(cause)
        self._restart = asyncio.ensure_future(self._start())

    def _bury(self, cause: str) -> None:
        import psutil
        import ray

        plan = self._plan
        assert plan is not None
        self.deaths.append(cause)
        log.warning("replica %d of %s: %s", self.number, plan.where, cause)
        self._tell(cause)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actor, no_restart=True)  # perhaps it is only out of reach
        if self._process is not None:  # a stopped process obeys no message
            with contextlib.suppress(psutil.Error):
                self._process.kill()
        self._actor = None
        self._seats.leave(self.number)
        if self._opened.journal:
            self._recovered |= finished_ids([Path(self._opened.journal)])
        self._barren = 0 if self._finished else self._barren + 1
        self.room.shrink()
        # A replica that dies while it still shrinks may yet find a size at which it lives.
        if self._barren >= BARREN_LIVES and (not self._opened.journal or self.room.limit == 1):
            self.lost = given_up(plan, self.number, self.deaths)

    async def _stop_restart(self) -> None:
        restart, self._restart = self._restart, None
        if restart is not None:
            restart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await restart


def unseen(method: Any) -> Any:
    """An actor's method whose calls the dashboard does not count among the stage's tasks."""
    return method.options(enable_task_events=False)


async def why_gone(actor: Any, error: Exception) -> str:
    """`death_of`, after waiting for Ray to know it: a lost node's worker is first out of reach."""
    import ray

    deadline = time.monotonic() + UNREACHABLE_SECONDS
    while isinstance(error, ray.exceptions.ActorUnavailableError):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        await asyncio.sleep(min(PULSE_SECONDS, left))
        try:
            await asyncio.wait_for(answer(unseen(actor.place).remote()), max(left, PULSE_SECONDS))
            break  # it answers again, but what it was doing is not to be had any more
        except TimeoutError:
            break
        except ray.exceptions.RayError as later:
            error = later
    return death_of(error)


def death_of(error: Exception) -> str:
    """Why an actor is dead, in words that are the same each time: no ids, no addresses."""
    item, text = failure(error), str(error)
    if "node has died" in text or "NodeDied" in type(error).__name__:
        return "the worker's node is gone"
    if type(error).__name__ == "ActorUnavailableError":
        return "the worker was out of reach"
    if item.kind != "died":
        return item.cause
    detail = re.search(r"Worker exit detail: ([^.\n]+)", text)
    return f"the worker process died ({detail[1].strip() if detail else 'no reason given'})"
