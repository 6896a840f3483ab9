from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.scheduler import Puller, Room


def test_both_replicas_work_and_none_holds_more_than_its_room() -> None:
    rooms = [Room(3), Room(3)]
    puller = Puller(range(40), rooms)
    held, most, ran = Counter(), Counter(), Counter()

    async def run(replica: int, job: int) -> bool:
        held[replica] += 1
        most[replica] = max(most[replica], held[replica])
        await asyncio.sleep(0.001)
        held[replica] -= 1
        ran[job] += 1
        return True

    asyncio.run(puller.run(run))
    assert ran == Counter(range(40))
    assert most == {0: 3, 1: 3}
    assert min(puller.taken) >= 0.2 * 40


def test_a_slow_replica_takes_less() -> None:
    puller = Puller(range(60), [Room(2), Room(2)])

    async def run(replica: int, job: int) -> bool:
        await asyncio.sleep(0.01 if replica else 0.001)
        return True

    asyncio.run(puller.run(run))
    assert puller.taken[0] > 2 * puller.taken[1] > 0


def test_few_jobs_are_spread() -> None:
    puller = Puller(range(4), [Room(8), Room(8)])

    async def run(replica: int, job: int) -> bool:
        await asyncio.sleep(0.001)
        return True

    asyncio.run(puller.run(run))
    assert puller.taken == [2, 2]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 25),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sets(st.integers(0, 25)),
)
def test_every_job_finishes_once_also_when_lost_before(
    n: int, rooms: list[int], lost: set[int]
) -> None:
    left = set(lost)
    finished: Counter[int] = Counter()
    made = [Room(r) for r in rooms]

    async def run(replica: int, job: int) -> bool:
        await asyncio.sleep(0)
        if job in left:
            left.discard(job)
            made[replica].shrink()
            return False
        finished[job] += 1
        return True

    asyncio.run(Puller(range(n), made).run(run))
    assert finished == Counter(range(n))
    assert all(room.held == 0 for room in made)


def test_an_exception_ends_all_and_is_raised() -> None:
    cancelled = []

    async def run(replica: int, job: int) -> bool:
        if job == 3:
            raise KeyError("three")
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            cancelled.append(job)
            raise
        return True

    with pytest.raises(KeyError, match="three"):
        asyncio.run(Puller(range(100), [Room(4), Room(4)]).run(run))
    assert len(cancelled) <= 7


def test_room_regains_its_size() -> None:
    room = Room(8)
    for _ in range(5):
        room.shrink()
    assert room.limit == 1

    async def work() -> None:
        for _ in range(40):
            await room.enter()
            room.leave()

    asyncio.run(work())
    assert room.limit == 8
