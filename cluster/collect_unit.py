"""A replica as the driver of a collection sees it, and the one in this process (`debug`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cluster.journal import Reader
from cluster.metered import Pulse
from cluster.pool import failure
from cluster.replica import Done, Job, Plan, Replica
from sentinel import episodes
from sentinel.engine import EngineDied
from sentinel.errors import UserError

log = logging.getLogger(__name__)
BARREN_LIVES = 3
"""Deaths in a row without a finished episode after which a replica is given up."""
PULSE_SECONDS = 1.0


class Unit(Protocol):
    """A replica as the driver sees it."""

    number: int
    deaths: list[str]
    lost: Exception | None
    """Why the replica was given up; None while it works or is being started."""
    last: Pulse | None

    async def open(self, plan: Plan) -> None:
        """Begin to load a plan; `ready` waits for it, `lost` says that it failed."""
        ...

    async def opened(self) -> None:
        """Wait until the plan is loaded, or the replica is given up."""
        ...

    async def ready(self) -> bool:
        """Wait until an episode may begin; False when it never will again."""
        ...

    def spare(self) -> None:
        """There was no episode after all."""
        ...

    async def run(self, job: Job) -> Done | None:
        """The finished episode; None when the replica died under it and it is to be run again.

        Raises UserError and Stop.
        """
        ...

    async def watch(self, wedged_seconds: float) -> None:
        """Feel the pulse, for ever; a replica that hangs is ended."""
        ...

    async def close(self) -> None:
        """Sync what is written and end."""
        ...


class LocalUnit:
    """A replica in this process (`debug`). What kills its engine for good ends the run."""

    def __init__(self, number: int, threads: int, died: Callable[[str], None]) -> None:
        self.number = number
        self.deaths: list[str] = []
        self.lost: Exception | None = None
        self.last: Pulse | None = None
        self._replica, self._limited, self._died = Replica(number, threads), False, died
        self._plan: Plan | None = None
        self._life = self._barren = 0
        self._reopening = asyncio.Lock()
        self._ended: asyncio.Future[None] | None = None
        """Set when this life of the engine is over; an exception where it hangs."""
        self._running: set[asyncio.Future[Done]] = set()

    async def open(self, plan: Plan) -> None:
        """Load the plan here."""
        self._plan = plan
        self._life += 1
        self._ended = asyncio.get_running_loop().create_future()
        self._limited = (await self._replica.open(plan, self._life)).limited

    async def opened(self) -> None:
        """Nothing: `open` has waited."""

    async def ready(self) -> bool:
        """Admission by tokens, where there is a limit."""
        async with self._reopening:
            pass
        if self._limited:
            await self._replica.admit()
        return True

    def spare(self) -> None:
        """Give the admission back."""
        if self._limited and self._replica.gate is not None:
            self._replica.gate.spare()

    async def run(self, job: Job) -> Done | None:
        """Run the episode here; a dead engine is loaded again."""
        life, ended = self._life, self._ended
        assert ended is not None
        episode = asyncio.ensure_future(self._replica.run(job))
        self._running.add(episode)
        try:
            both: set[asyncio.Future[Any]] = {episode, ended}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not episode.done() or episode.cancelled():
                ended.result()  # raises where the engine hangs
                return None
            done = await episode
        except EngineDied as error:
            await self._again(life, error)
            return None
        finally:
            episode.cancel()
            self._running.discard(episode)
        self._barren = 0
        return done

    async def _again(self, life: int, error: Exception) -> None:
        async with self._reopening:
            if life != self._life or self._plan is None:
                return
            self._barren += 1
            self.deaths.append(f"the engine died: {error}")
            self._died(self.deaths[-1])
            if self._barren >= BARREN_LIVES:
                raise given_up(self._plan, self.number, self.deaths) from None
            assert self._ended is not None
            self._ended.set_result(None)
            for episode in self._running:
                episode.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            await self.open(self._plan)

    async def watch(self, wedged_seconds: float) -> None:
        """Say so when the engine hangs: nothing else can be done in one process."""
        while True:
            await asyncio.sleep(period(wedged_seconds))
            self.last = await self._replica.pulse()
            ended = self._ended
            if self.last is None or ended is None or ended.done():
                continue
            if self.last.stalled_seconds > wedged_seconds:
                cause = f"the engine hangs: no token for {self.last.stalled_seconds:.0f} s"
                self._died(cause)
                remedy = "run again without --on debug: workers are restarted"
                ended.set_exception(UserError(cause, remedy))

    async def close(self) -> None:
        """End engine and sandbox; a hung engine is left to the end of the process."""
        if self._ended is not None and self._ended.done():
            with contextlib.suppress(UserError):
                self._ended.result()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._replica.close(), timeout=2)
            return
        await self._replica.close()


def finished_ids(paths: Sequence[Path]) -> set[str]:
    """Ids of the whole episodes in some journals."""
    reader = Reader(episodes.from_json_line, lambda e: e.episode_id)
    return {e.episode_id for e in reader.read(p for p in paths if p.exists())}


def mendable(error: Exception) -> Exception:
    """The UserError of a worker as it was; a bug with the worker's traceback."""
    original = failure(error).error
    return original if isinstance(original, UserError) else error


def given_up(plan: Plan, number: int, deaths: Sequence[str]) -> UserError:
    """Why a replica is not started again."""
    return UserError(
        f"replica {number} of {plan.where} died {len(deaths)} times: {deaths[-1]}",
        "lower collect.concurrency or collect.workers, or try --on debug to see the error",
    )


def period(wedged_seconds: float) -> float:
    """Seconds between two pulses."""
    return min(PULSE_SECONDS, wedged_seconds / 4)


async def answer(reference: Any) -> Any:
    """An object reference as a coroutine."""
    return await reference
