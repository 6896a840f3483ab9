"""`sentinel doctor` for environments: that a world keeps its promises before an agent enters it.

Generic over benchmarks whose actions are commands. A scripted success needs the benchmark's own
`oracle(task)` (its commands); one without is told so. Nothing here needs a model: episodes run
through the real loop with an engine that reads from a script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentinel.engine import EngineError, Generation, Request

if TYPE_CHECKING:
    from sentinel.agent.react import Action
    from sentinel.benchmarks.base import Benchmark, Environment, Step, Task
    from sentinel.episodes import Episode

SAMPLE, FEW = 40, 3
"""Tasks looked at, spread over the benchmark; the second where a session takes seconds to start."""
PLACE_SECONDS = 300.0
"""How long a second session beside the first may take to begin."""
USELESS = "wave at the wall"
"""A command that no world knows: what an agent without a clue keeps saying."""
Finding = tuple[str, str, str]
"""State (`ok`, `note` or `FAIL`), what was looked at, and what was found."""


class Script:
    """An engine that says prepared actions, then the last one for ever; `fails_at` a turn."""

    name, revision, context_window = "script", "script", 0

    def __init__(self, turns: Sequence[str], fails_at: int | None = None) -> None:
        self._turns, self._fails_at, self._said = list(turns), fails_at, 0

    async def generate(self, request: Request) -> Generation:
        """The next prepared turn."""
        self._said += 1
        if self._said == self._fails_at:
            raise EngineError("the script ends here")
        text = self._turns[min(self._said, len(self._turns)) - 1]
        return Generation(text, None, None, None, None, "stop", 0, 0)

    async def close(self) -> None:
        """Nothing to free."""


@dataclass
class Ledger:
    """Sessions begun and ended; the difference is what leaked."""

    opened: int = 0
    closed: int = 0


class Counted:
    """An environment that keeps a ledger."""

    def __init__(self, env: Environment, ledger: Ledger) -> None:
        self._env, self._ledger, self._open = env, ledger, False

    async def reset(self) -> str:
        """Begin; counted."""
        self._ledger.opened += 1
        self._open = True
        return await self._env.reset()

    async def step(self, action: Action) -> Step:
        """Unchanged."""
        return await self._env.step(action)

    async def close(self) -> None:
        """End; counted once, and only if the world did close."""
        await self._env.close()
        self._ledger.closed += self._open
        self._open = False


def checks(benchmark: Benchmark) -> Iterator[Finding]:
    """Every check of one benchmark, in a fixed order."""
    every = benchmark.tasks()
    sample = FEW if getattr(benchmark, "slow_start", False) else SAMPLE
    tasks = every[:: max(1, len(every) // sample)][:sample]
    yield _run("same start", _same_start(benchmark, tasks))
    yield _run("task as frozen", _as_frozen(benchmark, tasks))
    oracle = getattr(benchmark, "oracle", None)
    if oracle is None:
        yield "note", "scripted success", "the benchmark offers no oracle: not checked"
    else:
        yield _run("scripted success", _success(benchmark, tasks))
        if getattr(benchmark, "places", None) == 1:  # the second would wait for the first for ever
            yield "note", "separate sessions", "one session at a time is allowed: not checked"
        else:
            yield _run("separate sessions", _separate(benchmark, tasks))
    yield _run("scripted time-out", _time_out(benchmark, tasks[:5]))
    yield _run("closed after aborts", _aborts(benchmark, tasks[:5]))


def _run(what: str, check: Coroutine[Any, Any, tuple[list[str], str]]) -> Finding:
    try:
        faults, said = asyncio.run(check)
    except Exception as error:  # a world that raises is what this looks for
        faults, said = [f"{type(error).__name__}: {error}"], ""
    if faults:
        return "FAIL", what, f"{len(faults)} wrong; first: {faults[0]}"[:300]
    return "ok", what, said


async def _same_start(benchmark: Benchmark, tasks: Sequence[Task]) -> tuple[list[str], str]:
    faults = []
    for task in tasks:
        seen = []
        for _ in range(2):
            env = benchmark.make_env(task)
            try:
                seen.append(await env.reset())
            finally:
                await env.close()
        if seen[0] != seen[1]:
            faults.append(f"{task.task_id} begins differently the second time")
    return faults, f"{len(tasks)} tasks begin the same twice"


async def _as_frozen(benchmark: Benchmark, tasks: Sequence[Task]) -> tuple[list[str], str]:
    """What a world says at its start must hold the text that is frozen under the task's id."""
    faults = []
    for task in tasks:
        env = benchmark.make_env(task)
        try:
            told = await env.reset()
        finally:
            await env.close()
        if _words(task.text) not in _words(told):
            faults.append(
                f"{task.task_id} is another task under its id: {' '.join(told.split())[:80]!r} "
                f"instead of {' '.join(task.text.split())[:80]!r}"
            )
    return faults, f"{len(tasks)} tasks are what is frozen under their ids"


def _words(text: str) -> str:
    return f" {' '.join(text.lower().split()).rstrip('.')}"


async def _success(benchmark: Any, tasks: Sequence[Task]) -> tuple[list[str], str]:
    faults, longest, beyond = [], 0, 0
    for task in tasks:
        commands = benchmark.oracle(task)
        if len(commands) > benchmark.max_turns:
            beyond += 1
            continue
        episode = await _play(benchmark, task, Script(_turns(benchmark, commands)))
        longest = max(longest, episode.turns)
        if episode.end != "answered" or episode.success is not True:
            faults.append(f"{task.task_id} ended as {episode.end}, success {episode.success}")
    if beyond == len(tasks):
        faults.append(f"no task can be solved within the cap of {benchmark.max_turns}")
    tried = len(tasks) - beyond
    left = f"; {beyond} more need more turns than the cap" if beyond else ""
    return faults, f"{tried} of {tried} solved by the oracle, at most {longest} turns{left}"


async def _time_out(benchmark: Benchmark, tasks: Sequence[Task]) -> tuple[list[str], str]:
    faults = []
    for task in tasks:
        episode = await _play(benchmark, task, Script(_turns(benchmark, [USELESS])))
        if episode.end != "cap" or episode.turns != benchmark.max_turns:
            faults.append(f"{task.task_id} ended as {episode.end} after {episode.turns} turns")
        elif episode.success is not False:
            faults.append(f"{task.task_id} ran into the cap with success {episode.success}")
    return faults, f"{len(tasks)} episodes of nonsense end at turn {benchmark.max_turns}, failed"


async def _separate(benchmark: Any, tasks: Sequence[Task]) -> tuple[list[str], str]:
    """Two sessions of a task side by side see what one alone sees."""
    from sentinel.agent.react import Action

    faults = []
    for task in tasks:
        commands = benchmark.oracle(task)
        first, second = benchmark.make_env(task), benchmark.make_env(task)
        try:
            await first.reset()
            try:
                await asyncio.wait_for(second.reset(), PLACE_SECONDS)
            except TimeoutError:
                faults.append(f"{task.task_id}: beside one session no second begins")
                break
            alone = [(await first.step(Action("act", text=c))).observation for c in commands]
            after = [(await second.step(Action("act", text=c))).observation for c in commands]
        finally:
            await first.close()
            await second.close()
        if alone != after:
            faults.append(f"{task.task_id}: what one session did shows in the other")
    return faults, f"{len(tasks)} pairs of sessions, neither sees the other"


async def _aborts(benchmark: Benchmark, tasks: Sequence[Task]) -> tuple[list[str], str]:
    """Stopped by a monitor, failed by the engine, cancelled: every session is closed."""
    ledger = Ledger()
    for task in tasks:
        turns = _turns(benchmark, [USELESS])
        await _play(benchmark, task, Script(turns), ledger, stop_at=2)
        await _play(benchmark, task, Script(turns, fails_at=2), ledger)
        running = asyncio.create_task(_play(benchmark, task, Hanging(turns), ledger))
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    counter = getattr(benchmark, "open_sessions", None)
    left = ledger.opened - ledger.closed if counter is None else counter()
    faults = [f"{left} of {ledger.opened} sessions still open"] if left else []
    return faults, f"{ledger.opened} sessions opened, {ledger.closed} closed"


class Hanging(Script):
    """An engine that answers once and then never again."""

    async def generate(self, request: Request) -> Generation:
        """The first turn; the second waits to be cancelled."""
        if self._said:
            await asyncio.Event().wait()
        return await super().generate(request)


def _turns(benchmark: Benchmark, commands: Sequence[str]) -> list[str]:
    from sentinel.agent.react import Action
    from sentinel.agent.react import format as format_action

    return [format_action(Action("act", text=c), benchmark.dialect) for c in commands]


async def _play(
    benchmark: Benchmark,
    task: Task,
    engine: Script,
    ledger: Ledger | None = None,
    stop_at: int | None = None,
) -> Episode:
    from sentinel.agent.loop import run_episode

    return await run_episode(
        engine,
        None,
        Counted(benchmark.make_env(task), ledger or Ledger()),
        task,
        agent_name="script",
        benchmark=benchmark.name,
        max_turns=benchmark.max_turns,
        dialect=benchmark.dialect,
        on_turn=lambda e: "stopped" if stop_at is not None and e.turns >= stop_at else None,
    )
