"""Pull scheduling: every replica takes the next job when it has room; a job stays where it started.

Pure asyncio, no Ray: the same code runs on actors, in a debug loop and on a simulated clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

J = TypeVar("J")


class Room:
    """How many jobs a replica may hold: halved when it dies, regained as jobs finish.

    >>> room = Room(8); room.shrink(); room.limit
    4
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError("a replica needs room for one job")
        self.most = self.limit = most
        self.held = 0
        self._since = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait until a job fits; first come, first served."""
        if self.held < self.limit and not self._waiting:
            self.held += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place  # `held` was counted by whoever let us in
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave(finished=False)
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def leave(self, *, finished: bool = True) -> None:
        """A job is over; after as many successes as the limit, the limit doubles up to `most`."""
        self.held -= 1
        if finished and self.limit < self.most:
            self._since += 1
            if self._since >= 2 * self.limit:
                self.limit, self._since = min(2 * self.limit, self.most), 0
        self._admit()

    def shrink(self) -> None:
        """The replica died, perhaps of too much at once."""
        self.limit, self._since = max(1, self.limit // 2), 0

    def _admit(self) -> None:
        while self._waiting and self.held < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.held += 1
                place.set_result(None)


class Puller(Generic[J]):
    """Hands jobs to replicas, longest expected first, until every job is finished.

    A replica that has no job left waits for those in flight elsewhere: what a dead one gives back
    is taken by whoever has room, not by its next life alone.

    Args:
        jobs: what is to be done.
        rooms: one per replica.
        expected: how long a job is expected to take, in any unit; equal ones keep their order.
    """

    def __init__(
        self,
        jobs: Iterable[J],
        rooms: Sequence[Room],
        expected: Callable[[J], float] | None = None,
    ) -> None:
        ordered = list(jobs) if expected is None else sorted(jobs, key=lambda j: -expected(j))
        self._jobs = deque(ordered)
        self.rooms = rooms
        self.taken = [0] * len(rooms)
        self.in_flight = 0
        self.emptied_at: float | None = None
        """The loop's time when the last job was first taken: the tail begins."""
        self._stopped = False
        self._idle: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()

    @property
    def left(self) -> int:
        """Jobs that nobody has taken, or that were given back."""
        return len(self._jobs)

    def stop(self) -> None:
        """Hand out no more jobs, and take none back; those in flight go on."""
        self._stopped = True
        self._jobs.clear()
        self._end_if_over()

    async def run(
        self,
        run: Callable[[int, J], Awaitable[bool]],
        ready: Callable[[int], Awaitable[bool]] | None = None,
        spare: Callable[[int], None] | None = None,
    ) -> None:
        """Until no job is left. The first exception of a callback cancels the rest and is raised.

        `run(replica, job)` returns False to have the job done again, by any replica. `ready`
        waits until a replica can take a job, and returns False where it never will again;
        `spare` tells a replica that was ready that there was no job after all. Jobs are left
        over only when no replica remains.
        """
        if self._jobs:
            self._left.set()
        try:
            async with asyncio.TaskGroup() as group:
                # Slot by slot over the replicas: few jobs are spread, not piled on the first.
                for slot in range(max(room.most for room in self.rooms) if self._jobs else 0):
                    for replica, room in enumerate(self.rooms):
                        if slot < room.most:
                            task = group.create_task(self._slot(replica, run, ready, spare))
                            self._idle.add(task)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _slot(
        self,
        replica: int,
        run: Callable[[int, J], Awaitable[bool]],
        ready: Callable[[int], Awaitable[bool]] | None,
        spare: Callable[[int], None] | None,
    ) -> None:
        me: Any = asyncio.current_task()
        room = self.rooms[replica]
        while True:
            await self._left.wait()
            await room.enter()
            finished = False
            try:
                if ready is not None and not await ready(replica):
                    self._idle.discard(me)
                    return
                found = self._next()
                if found is None:
                    if spare is not None:
                        spare(replica)
                    continue
                self._idle.discard(me)
                self.taken[replica] += 1
                self.in_flight += 1
                try:
                    finished = await run(replica, found[0])
                finally:
                    self.in_flight -= 1
                self._idle.add(me)
                if not finished and not self._stopped:
                    self._jobs.appendleft(found[0])  # it was among the first: it is long
                    self._left.set()
            finally:
                room.leave(finished=finished)
            self._end_if_over(me)
            if self.over:
                return

    @property
    def over(self) -> bool:
        """Nothing is left and nothing is in flight."""
        return not self._jobs and not self.in_flight

    def _next(self) -> tuple[J] | None:
        if not self._jobs:
            self._left.clear()
            return None
        found = (self._jobs.popleft(),)
        if not self._jobs and self.emptied_at is None:
            self.emptied_at = asyncio.get_running_loop().time()
        return found

    def _end_if_over(self, me: asyncio.Task[None] | None = None) -> None:
        if self.over:  # whoever waits (for room, for a replica's next life) waits for nothing
            for task in self._idle:
                if task is not me:
                    task.cancel()
