from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_engine import ScriptedEngine

from cluster.metered import Metered, TokenGate
from sentinel.engine import Request


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Strict(TokenGate):
    """Notes each entry that passes the limit and is not alone."""

    def __init__(self, limit: int, max_tokens: int) -> None:
        self.over: list[int] = []
        self._tickets = 0
        super().__init__(limit, max_tokens)

    @property
    def tickets(self) -> int:
        return self._tickets

    @tickets.setter
    def tickets(self, value: int) -> None:
        entered, self._tickets = value > self._tickets, value
        if entered and (value > 1 or self.live) and self.tokens > (self.limit or 0):
            self.over.append(self.tokens)


@given(
    st.integers(1, 400),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(1, 120), st.integers(1, 4)), max_size=20),
)
def test_nobody_enters_beyond_the_limit_and_everybody_gets_through(
    limit: int, max_tokens: int, episodes: list[tuple[int, int]]
) -> None:
    gate = Strict(limit, max_tokens)

    async def episode(name: str, prompt: int, turns: int) -> None:
        await gate.admit()
        gate.begin(name)
        for turn in range(turns):
            gate.declare(name, prompt * (turn + 1))
            assert gate.live[name] == prompt * (turn + 1) + max_tokens
            await asyncio.sleep(0)
        gate.leave(name)

    async def all_of_them() -> None:
        await asyncio.gather(*(episode(str(i), *e) for i, e in enumerate(episodes)))

    asyncio.run(asyncio.wait_for(all_of_them(), 20))
    assert not gate.live
    assert gate.tickets == 0
    assert gate.over == [], "only growth of live episodes may pass the limit, never an entry"


def test_the_first_runs_alone_until_its_prompt_is_known() -> None:
    async def check() -> None:
        gate = TokenGate(1000, 100)
        entered = []

        async def enter(name: str) -> None:
            await gate.admit()
            gate.begin(name)
            entered.append(name)

        tasks = [asyncio.create_task(enter(n)) for n in "abcdef"]
        await settle()
        assert entered == ["a"]
        gate.declare("a", 150)
        await settle()
        assert entered == ["a", "b", "c", "d"], "four times 250 tokens fit into 1,000"
        gate.declare("a", 700)  # a live episode may grow beyond the limit
        gate.leave("b")
        await settle()
        assert entered == ["a", "b", "c", "d"]
        gate.leave("a")
        await settle()
        assert entered == ["a", "b", "c", "d", "e", "f"]
        await asyncio.gather(*tasks)

    asyncio.run(check())


def test_a_cancelled_or_spare_admission_gives_its_place_back() -> None:
    async def check() -> None:
        gate = TokenGate(100, 60)
        await gate.admit()
        gate.begin("a")
        gate.declare("a", 1)
        waiting = [asyncio.create_task(gate.admit()) for _ in range(3)]
        await settle()
        waiting[0].cancel()
        gate.leave("a")
        await settle()
        assert [t.done() for t in waiting] == [True, True, False]
        gate.spare()
        await settle()
        assert waiting[2].done()
        assert gate.tokens == 61

    asyncio.run(check())


def test_without_a_limit_everybody_enters() -> None:
    async def check() -> None:
        gate = TokenGate(None, 10)
        for i in range(100):
            await gate.admit()
            gate.begin(str(i))

    asyncio.run(check())


class Slow(ScriptedEngine):
    """Makes a token when told."""

    progress = 7

    async def generate(self, request: Request):
        self.go = asyncio.Event()
        await self.go.wait()
        return await super().generate(request)


def test_a_request_without_tokens_stalls_and_a_token_is_a_sign_of_life() -> None:
    async def check() -> None:
        now = [0.0]
        engine = Slow(["a b c"])
        metered = Metered(engine, TokenGate(None, 10), clock=lambda: now[0])
        now[0] = 50
        assert metered.pulse().stalled_seconds == 0, "an idle engine does not hang"
        task = asyncio.create_task(metered.generate(Request("e/1", (1, 2), (), 10)))
        await settle()
        now[0] = 80
        assert metered.pulse().stalled_seconds == 30
        assert metered.pulse().requests == 1
        engine.progress = 9
        assert metered.pulse().stalled_seconds == 0
        now[0] = 90
        assert metered.pulse().stalled_seconds == 10
        assert metered.pulse().generated_tokens == 2
        engine.go.set()
        await task
        assert metered.pulse().stalled_seconds == 0

    asyncio.run(check())


def test_an_engine_that_counts_nothing_is_not_watched() -> None:
    async def check() -> None:
        now = [0.0]
        metered = Metered(ScriptedEngine(["a b c"]), TokenGate(None, 9), clock=lambda: now[0])
        await metered.generate(Request("e/1", (1, 2), (), 10))
        now[0] = 1e6
        assert metered.pulse().stalled_seconds == 0
        assert metered.pulse().generated_tokens == 3

    asyncio.run(check())


@pytest.mark.parametrize("prompt", [(1, 2, 3), None])
def test_a_request_declares_its_prompt(prompt: tuple[int, ...] | None) -> None:
    async def check() -> None:
        gate = TokenGate(1000, 10)
        metered = Metered(ScriptedEngine(["x"]), gate)
        gate.begin("w/a/1/0")
        await metered.generate(Request("w/a/1/0/2", prompt, (), 10))
        assert gate.live["w/a/1/0"] == (13 if prompt else 10)

    asyncio.run(check())
