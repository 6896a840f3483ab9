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


def test_the_longest_expected_goes_first_and_equals_keep_their_order() -> None:
    begun: list[tuple[str, int]] = []
    jobs = [("a", 1), ("b", 9), ("c", 1), ("d", 9), ("e", 4)]

    async def run(replica: int, job: tuple[str, int]) -> bool:
        begun.append(job)
        return True

    asyncio.run(Puller(jobs, [Room(1)], expected=lambda j: j[1]).run(run))
    assert [name for name, _ in begun] == ["b", "d", "e", "a", "c"]


def test_what_a_dead_replica_gives_back_is_done_elsewhere_before_its_next_life() -> None:
    """The only job left dies with replica 0, which is not ready again for a long time."""
    ran: list[tuple[int, int]] = []
    alive = [True, True]

    async def run(replica: int, job: int) -> bool:
        ran.append((replica, job))
        if (replica, job) == (0, 0):
            await asyncio.sleep(0.01)  # the other has finished its own by then, and waits
            alive[0] = False
            return False
        return True

    async def ready(replica: int) -> bool:
        if not alive[replica]:
            await asyncio.sleep(3600)
        return True

    async def timed() -> None:
        await asyncio.wait_for(Puller(range(2), [Room(1), Room(1)]).run(run, ready), 30)

    asyncio.run(timed())
    assert ran == [(0, 0), (1, 1), (1, 0)]


def test_a_replica_that_never_gets_ready_stalls_nobody() -> None:
    async def run(replica: int, job: int) -> bool:
        assert replica == 1
        await asyncio.sleep(0)
        return True

    async def ready(replica: int) -> bool:
        if replica == 0:
            await asyncio.sleep(3600)
        return True

    puller = Puller(range(20), [Room(2), Room(2)])
    asyncio.run(asyncio.wait_for(puller.run(run, ready), 30))
    assert puller.taken == [0, 20]
    assert puller.over


def test_jobs_are_left_over_only_when_every_replica_is_given_up() -> None:
    given_up: set[int] = set()

    async def run(replica: int, job: int) -> bool:
        await asyncio.sleep(0)
        if job == 5 or replica == 0:
            given_up.add(replica)
            return False
        return True

    async def ready(replica: int) -> bool:
        return replica not in given_up

    puller = Puller(range(10), [Room(1), Room(1)])
    asyncio.run(asyncio.wait_for(puller.run(run, ready), 30))
    assert given_up == {0, 1}
    assert puller.left > 0


def test_stop_hands_out_nothing_more_and_lets_what_runs_finish() -> None:
    finished: list[int] = []

    async def main() -> Puller[int]:
        puller = Puller(range(100), [Room(3)])

        async def run(replica: int, job: int) -> bool:
            if job == 1:
                await asyncio.sleep(0)  # the third has begun by then
                puller.stop()
                return False
            await asyncio.sleep(0.01)
            finished.append(job)
            return True

        await asyncio.wait_for(puller.run(run), 30)
        return puller

    puller = asyncio.run(main())
    assert finished == [0, 2]
    assert puller.taken == [3]
    assert puller.left == 0


def test_a_replica_that_was_ready_for_nothing_is_told() -> None:
    spared = Counter[int]()

    async def run(replica: int, job: int) -> bool:
        await asyncio.sleep(0.01)
        return True

    async def ready(replica: int) -> bool:
        await asyncio.sleep(0)
        return True

    puller = Puller(range(2), [Room(4), Room(4)])
    asyncio.run(puller.run(run, ready, lambda replica: spared.update([replica])))
    assert sum(puller.taken) == 2
    assert spared.total() == 6
