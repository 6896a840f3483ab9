"""Gold actions through a benchmark's own environment: does the reference run, and give what?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentinel.benchmarks.base import Benchmark, Task

IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gold action: status ok, empty or error; `reproduced` is None without a known answer."""

    task_id: str
    status: str
    value: bool
    """At least one cell is not NULL."""
    reproduced: bool | None
    error: str | None = None


@dataclass(slots=True)
class Counts:
    """Outcomes of a benchmark's gold actions."""

    run: int = 0
    values: int = 0
    empty: int = 0
    failed: int = 0
    reproduced: int = 0
    with_answer: int = 0
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.run:
            return "no reference actions to run"
        text = f"{self.run - self.failed - self.empty} ok, {self.empty} empty, {self.failed} error"
        text += f" of {self.run} ({100 * self.values / self.run:.1f} % give a value)"
        if self.with_answer:
            text += f"; {self.reproduced} of {self.with_answer} known answers reproduced"
        if self.errors:
            text += f"; first error: {self.errors[0]}"
        return text


def run_gold(benchmark: Benchmark, limit: int | None = None) -> list[Outcome]:
    """Play the gold action of every task (at most `limit`) as its final answer."""
    tasks = [t for t in benchmark.tasks() if t.gold is not None][:limit]
    return asyncio.run(_run(benchmark, tasks))


def counts(outcomes: Iterable[Outcome]) -> Counts:
    """Sum outcomes."""
    total = Counts()
    for outcome in outcomes:
        total.run += 1
        total.values += outcome.value
        total.empty += outcome.status == "empty"
        if outcome.status not in ("ok", "empty"):
            total.failed += 1
            total.errors.append(f"{outcome.task_id}: {outcome.error or outcome.status}"[:200])
        if outcome.reproduced is not None:
            total.with_answer += 1
            total.reproduced += outcome.reproduced
    return total


def verdict(outcomes: Sequence[Outcome], excused: Collection[str] = ()) -> tuple[str, str]:
    """State of a check (`ok`, `note` where nothing ran, `FAIL`) and what to add to its line.

    A gold action that fails, or gives another answer than is known for it, is a fault, but for the
    ids that are `excused` from the second.
    """
    failed = [o.task_id for o in outcomes if o.status not in ("ok", "empty")]
    other = [o.task_id for o in outcomes if o.reproduced is False]
    strange = [i for i in other if i not in excused and i not in failed]
    if failed:
        return "FAIL", "; name the database that these questions are about"
    if strange:
        return "FAIL", (
            f"; {len(strange)} with another answer (first: {strange[0]}): "
            "name the database and clock that these answers come from"
        )
    known = f"; the other {len(other)} are listed as not reproducible" if other else ""
    return ("ok" if outcomes else "note"), known


async def _run(benchmark: Benchmark, tasks: list[Task]) -> list[Outcome]:
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(task: Task) -> Outcome:
        async with gate:
            return await _play(benchmark, task)

    return list(await asyncio.gather(*(one(t) for t in tasks)))


async def _play(benchmark: Benchmark, task: Task) -> Outcome:
    from sentinel.agent.react import Action

    env = benchmark.make_env(task)
    try:
        await env.reset()
        step = await env.step(Action("final", text=task.gold or ""))
    finally:
        await env.close()
    cells = _cells(step.answer)
    return Outcome(
        task.task_id,
        step.status,
        any(cell is not None for cell in cells or ()),
        reproduced(task.meta.get("answer"), step.answer),
        step.error,
    )


def _cells(answer: str | None) -> list[Any] | None:
    if answer is None:
        return None
    return [cell for row in json.loads(answer)["rows"] for cell in row]


def reproduced(known: Any, answer: str | None) -> bool | None:
    """Whether a known answer (typed JSON, or plain rows) came out; order of rows is free.

    `{"scorer": "strict-2022", "rows": …}` is compared as that scorer does: such rows were cut.
    """
    if known is None:
        return None
    if answer is None:
        return False
    from sentinel.sql.compare import equal_strict_2022, equal_strict_2024, equal_typed
    from sentinel.sql.result import Result

    got = Result.from_json(answer)
    if isinstance(known, dict) and "scorer" in known:
        scorers = {"strict-2022": equal_strict_2022, "strict-2024": equal_strict_2024}
        return bool(scorers[known["scorer"]](_as_result(known["rows"], len(got.columns)), got))
    return bool(equal_typed(_as_result(known, len(got.columns)), got, ordered=False))


def _as_result(known: Any, width: int) -> Any:
    from sentinel.sql.result import Result, decode_rows

    value = json.loads(known) if isinstance(known, str) and known[:1] in "[{" else known
    if isinstance(value, dict):
        return Result.from_parts(value)
    rows = value if isinstance(value, list | tuple) else [[value]]
    rows = [r if isinstance(r, list | tuple) else [r] for r in rows]
    return Result(tuple(f"c{i}" for i in range(width)), decode_rows(rows))
