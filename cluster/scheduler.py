"""Pull scheduling: every replica takes the next job when it has room; a job stays where it started.

Pure asyncio, no Ray: the same code runs on actors, in a debug loop and on a simulated clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

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
            else:
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
    """Hands jobs to replicas. `run(replica, job)` returns False to have the job done again."""

    def __init__(self, jobs: Iterable[J], rooms: Sequence[Room]) -> None:
        self._fresh = iter(jobs)
        self._again: deque[J] = deque()
        self.rooms = rooms
        self.taken = [0] * len(rooms)

    async def run(self, run: Callable[[int, J], Awaitable[bool]]) -> None:
        """Until no job is left. The first exception of `run` cancels the rest and is raised."""
        try:
            async with asyncio.TaskGroup() as group:
                # Slot by slot over the replicas: few jobs are spread, not piled on the first.
                for slot in range(max(room.most for room in self.rooms)):
                    for replica, room in enumerate(self.rooms):
                        if slot < room.most:
                            group.create_task(self._slot(replica, run))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _next(self) -> tuple[J] | None:
        if self._again:
            return (self._again.popleft(),)
        for job in self._fresh:
            return (job,)
        return None

    async def _slot(self, replica: int, run: Callable[[int, J], Awaitable[bool]]) -> None:
        room = self.rooms[replica]
        while True:
            await room.enter()
            finished = False
            try:
                found = self._next()
                if found is None:
                    return
                self.taken[replica] += 1
                finished = await run(replica, found[0])
                if not finished:
                    self._again.append(found[0])
            finally:
                room.leave(finished=finished)
