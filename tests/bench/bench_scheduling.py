"""The production scheduler on simulated engines, in virtual time: its cost beside flat prompts.

`Puller`, `Room` and `TokenGate` are those of a collection; engines, tools and clock are simulated,
so that every run gives the same figures on any machine. The trace (data/turns.parquet, made from a
run of configs/demo.yaml by record_trace.py) says how many tokens each turn read and made and what
its tool took. An engine makes a token for every row in each step; a step's time grows with the rows
and a prompt holds it up; the pace of a full batch is the recorded one.

Flat: every turn is a prompt of its own, known from the start, longest first. Lock-step: as many
episodes as there are places begin together; all wait for the last generation and the last tool of
every turn, and for the last episode before the next ones begin. The long-tailed trace stretches the
recorded turns by a lognormal factor per task.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import harness  # noqa: E402
import virtual_clock  # noqa: E402

from cluster.expected import lengths_of  # noqa: E402
from cluster.metered import TokenGate  # noqa: E402
from cluster.scheduler import Puller, Room  # noqa: E402
from sentinel.benchmarks.base import Task  # noqa: E402

AGENT = 3
"""The agent of the trace that takes most turns; the others' episodes say what to expect."""
CONCURRENCY = 16
EPISODES, REPLICAS = 1200, 2
"""As many as were recorded, on as many replicas."""
PER_REPLICA = 160
"""Episodes per replica where their number is what varies."""
MAX_TOKENS = 192
TOKENS = CONCURRENCY * 150
"""Tokens in flight that hold back about half of a full replica's episodes."""
FIXED_SHARE = 0.5
"""Share of a full batch's step that one row alone takes as well."""
PREFILL = 0.02
"""Steps that reading one token of a prompt holds the others up."""
TAIL = 0.8
"""Standard deviation of the logarithm of the long tail's factor."""


@dataclass(frozen=True, slots=True)
class Turn:
    """New tokens of the prompt, tokens made, seconds of the tool."""

    new: int
    made: int
    tool: float


@dataclass(frozen=True, slots=True)
class Episode:
    """A recorded episode and what was expected of it."""

    name: str
    turns: tuple[Turn, ...]
    expected: float

    @property
    def made(self) -> int:
        """Tokens of all turns."""
        return sum(t.made for t in self.turns)


class Engine:
    """A batching engine: one token per row and step, `busy` row-seconds and no waiting."""

    def __init__(self, full_step: float) -> None:
        self.fixed = FIXED_SHARE * full_step
        self.each = (1 - FIXED_SHARE) * full_step / CONCURRENCY
        self.prefill = PREFILL * full_step
        self.busy = self.made = self._last = self._held_up = 0.0
        self._rows: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0

    async def generate(self, turn: Turn) -> None:
        """Answer one prompt."""
        loop = asyncio.get_running_loop()
        self._advance(loop.time())
        self._held_up += self.prefill * turn.new
        self._count += 1
        done = loop.create_future()
        heapq.heappush(self._rows, (self.made + max(turn.made, 1), self._count, done))
        self._plan(loop)
        await done

    def _step(self) -> float:
        return self.fixed + self.each * len(self._rows)

    def _advance(self, now: float) -> None:
        passed = now - self._last
        self._last = now
        if self._rows:
            self.busy += passed * len(self._rows)
            read = min(passed, self._held_up)
            self._held_up -= read
            self.made += (passed - read) / self._step()  # tokens of each row since the start

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._rows:
            left = max(self._rows[0][0] - self.made, 0.0)
            self._timer = loop.call_later(self._held_up + left * self._step(), self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._advance(loop.time())
        while self._rows and self._rows[0][0] <= self.made + 1e-6:
            heapq.heappop(self._rows)[2].set_result(None)
        self._plan(loop)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Virtual seconds of the whole.

    Until the last episode was taken: the share of the places that were in use, and episodes per
    second.
    """

    seconds: float
    used: float = 1.0
    pace: float = 0.0
    by_replica: tuple[int, ...] = ()


async def production(episodes: Sequence[Episode], replicas: int, limit: int | None) -> Outcome:
    """As a collection does it: pulled, longest expected first, admitted by tokens in flight."""
    engines = [Engine(full_step()) for _ in range(replicas)]
    gates = [TokenGate(limit, MAX_TOKENS) for _ in range(replicas)]
    puller = Puller(episodes, [Room(CONCURRENCY) for _ in engines], lambda e: e.expected)
    busy: list[float] = []

    async def run(replica: int, episode: Episode) -> bool:
        if puller.emptied_at is not None and not busy:
            busy.append(sum(e.busy for e in engines))
        gate, prompt = gates[replica], 0
        gate.begin(episode.name)
        for turn in episode.turns:
            prompt += turn.new
            gate.declare(episode.name, prompt)
            await engines[replica].generate(turn)
            prompt += turn.made
            await asyncio.sleep(turn.tool)
        gate.leave(episode.name)
        return True

    async def ready(replica: int) -> bool:
        await gates[replica].admit()
        return True

    await puller.run(run, ready, lambda i: gates[i].spare())
    assert puller.emptied_at
    places = replicas * CONCURRENCY * puller.emptied_at
    pace = len(episodes) / puller.emptied_at
    return Outcome(loop_time(), busy[0] / places, pace, tuple(puller.taken))


async def flat(episodes: Sequence[Episode], replicas: int) -> Outcome:
    """Every turn at once, on whichever engine has a place."""
    engines = [Engine(full_step()) for _ in range(replicas)]
    turns = sorted((t for e in episodes for t in e.turns), key=lambda t: -t.made)
    puller = Puller(turns, [Room(CONCURRENCY) for _ in engines])

    async def run(replica: int, turn: Turn) -> bool:
        await engines[replica].generate(turn)
        return True

    await puller.run(run)
    return Outcome(loop_time())


async def lock_step(episodes: Sequence[Episode], replicas: int) -> Outcome:
    """Batches of episodes, and within them turns, in step."""
    engines = [Engine(full_step()) for _ in range(replicas)]
    places = replicas * CONCURRENCY
    for start in range(0, len(episodes), places):
        batch = episodes[start : start + places]
        for number in range(max(len(e.turns) for e in batch)):
            live = [(i, e.turns[number]) for i, e in enumerate(batch) if number < len(e.turns)]
            await asyncio.gather(*(engines[i % replicas].generate(t) for i, t in live))
            await asyncio.sleep(max(t.tool for _, t in live))
    return Outcome(loop_time())


def loop_time() -> float:
    """Virtual seconds since the start."""
    return asyncio.get_running_loop().time()


@cache
def columns() -> dict[str, np.ndarray]:
    """The trace."""
    with (HERE / "data" / "turns.parquet").open("rb") as file:
        table = pq.ParquetFile(file).read()
    return {name: np.asarray(table[name]) for name in table.column_names}


@cache
def full_step() -> float:
    """Seconds of a step of a full batch: recorded, per token."""
    data = columns()
    return float(data["engine_us"].sum() / data["generated_tokens"].sum() / 1e6)


@cache
def recorded() -> tuple[tuple[int, int, tuple[Turn, ...]], ...]:
    """(task, group, turns) of every episode of the agent."""
    data, found = columns(), []
    mine = np.flatnonzero(data["agent"] == AGENT)
    starts = [*mine[data["turn"][mine] == 1], mine[-1] + 1]
    for begin, end in pairwise(starts):
        turns = tuple(
            Turn(
                int(data["new_tokens"][i]),
                int(data["generated_tokens"][i]),
                data["env_us"][i] / 1e6,
            )
            for i in range(begin, end)
        )
        found.append((int(data["task"][begin]), int(data["group"][begin]), turns))
    return tuple(found)


def episodes_of(n: int, seed: int, tail: float = 0.0) -> list[Episode]:
    """n episodes drawn from the trace; with `tail`, stretched by a lognormal factor per task."""
    rng, pool, data = np.random.default_rng(seed), recorded(), columns()
    others = data["agent"] != AGENT
    seen = zip(data["task"][others], data["group"][others], data["generated_tokens"][others],
               strict=True)  # fmt: skip
    tasks = [Task("w", str(t), str(g), "") for t, g, _ in pool]
    expected = lengths_of(((str(t), str(g), int(n)) for t, g, n in seen), tasks)
    stretch = {task: float(np.exp(rng.normal(0, tail))) if tail else 1.0 for task, _, _ in pool}
    out = []
    for i, at in enumerate(rng.permutation(np.resize(np.arange(len(pool)), n))):
        task, _, turns = pool[at]
        longer = tuple(Turn(t.new, max(1, round(t.made * stretch[task])), t.tool) for t in turns)
        out.append(Episode(f"e{i}", longer, expected[str(task)] * stretch[task]))
    return out


def simulate(main: Callable[..., object], *args: object) -> Outcome:
    """One run in virtual time."""
    return virtual_clock.run(main(*args))  # type: ignore[arg-type]


def bench(tiny: bool) -> Iterable[harness.Line]:
    """Ratios over seeds: the clock is virtual, so pairs need no alternation."""
    seeds = range(2 if tiny else 7)
    sizes = (1, 8) if tiny else (1, 8, 64, 512)
    n, each = (200, 40) if tiny else (EPISODES, PER_REPLICA)
    of_flat, over_steps = [], []
    for seed in seeds:
        some, tailed = episodes_of(n, seed), episodes_of(n, seed, TAIL)
        ours = simulate(production, some, REPLICAS, None)
        of_flat.append(simulate(flat, some, REPLICAS).seconds / ours.seconds)
        steps = simulate(lock_step, tailed, REPLICAS)
        over_steps.append(steps.seconds / simulate(production, tailed, REPLICAS, None).seconds)
        assert min(ours.by_replica) > 0, "a replica without work"
    yield harness.Line("scheduling_of_flat", harness.summary(of_flat), at_least=0.95)
    yield harness.Line("scheduling_over_lock_step", harness.summary(over_steps), at_least=1.5)
    pace = {}
    for replicas in sizes:
        found = [
            simulate(production, episodes_of(replicas * each, seed), replicas, None)
            for seed in range(1 if replicas > 8 else len(seeds))
        ]
        pace[replicas] = harness.summary(f.pace for f in found).median
        assert min(min(f.by_replica) for f in found) > 0, "a replica without work"
        used = harness.summary(f.used for f in found)
        yield harness.Line(f"scheduling_places_used_{replicas}", used, "", at_least=0.95)
    last = sizes[-1]
    growth = harness.summary([pace[last] / pace[1] / last])
    yield harness.Line(f"scheduling_growth_1_to_{last}", growth, at_least=0.95)
    some = episodes_of(n, 0)
    free, held = (simulate(production, some, REPLICAS, x).seconds for x in (None, TOKENS))
    yield harness.Line("scheduling_time_at_half_the_tokens", harness.summary([held / free]))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, bench))
