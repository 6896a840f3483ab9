"""Concurrency and waits, on a clock of their own."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engines.openai_limits import LONGEST_BACKOFF, Concurrency, backoff, retry_after


class Virtual:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def made(most: int = 20) -> tuple[Concurrency, Virtual]:
    clock = Virtual()
    return Concurrency(most, clock, clock.sleep), clock


def test_one_congestion_halves_once_and_the_next_one_again() -> None:
    limit, clock = made()
    clock.now = 1.0
    for _ in range(5):  # five replies to requests sent before the first 429 came back
        limit.slow_down(sent_at=0.5)
    assert (limit.limit, limit.halvings) == (10, 1)
    clock.now = 3.0
    limit.slow_down(sent_at=2.0)
    assert limit.limit == 5
    for _ in range(5):
        limit.succeeded()
    assert limit.limit == 6
    for _ in range(1000):
        limit.succeeded()
    assert limit.limit == 20, "never above the start"


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 30))
def test_the_limit_stays_in_its_bounds(events: list[bool], most: int) -> None:
    limit, clock = made(most)
    for congested in events:
        clock.now += 1.0
        if congested:
            limit.slow_down(clock.now)
        else:
            limit.succeeded()
        assert 1 <= limit.limit <= most


def test_no_more_in_flight_than_the_limit_and_everybody_gets_a_turn() -> None:
    async def run() -> tuple[int, int]:
        limit, _ = made(3)
        most = turns = 0

        async def one() -> None:
            nonlocal most, turns
            await limit.enter()
            most, turns = max(most, limit.in_flight), turns + 1
            await asyncio.sleep(0)
            limit.leave()

        tasks = [asyncio.create_task(one()) for _ in range(40)]
        await asyncio.sleep(0)
        for task in tasks[4::5]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert limit.in_flight == 0
        return most, turns

    most, turns = asyncio.run(run())
    assert (most, turns) == (3, 32)


def test_a_pause_holds_everybody_until_its_end() -> None:
    async def run() -> None:
        limit, clock = made()
        limit.slow_down(sent_at=0.0, pause=7.0)
        limit.pause(3.0)  # a shorter one ends no longer one
        assert await limit.enter() == 7.0
        assert clock.slept == [7.0]

    asyncio.run(run())


def test_room_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="room"):
        Concurrency(0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=10.0) == seconds


@given(st.integers(1, 500), st.text(max_size=9))
def test_backoff_is_bounded_and_repeats(failures: int, seed: str) -> None:
    wait = backoff(failures, seed, 1.0)
    assert 0.5 <= wait <= LONGEST_BACKOFF
    assert wait == backoff(failures, seed, 1.0)
