"""What a benchmark is: tasks in groups, and an environment for each task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from sentinel.agent.react import Action, Dialect
from sentinel.errors import UserError

if TYPE_CHECKING:
    from sentinel.benchmarks.craft.rules import RecipeBook
    from sentinel.sql.sandbox import SandboxPool

Status = Literal["ok", "empty", "error", "malformed", "none"]


class DataError(UserError):
    """Benchmark data a user can mend; the message names the cause and the next command."""


@dataclass(frozen=True, slots=True)
class Task:
    """One item of a benchmark: a question or a goal.

    `group` is the unit that never leaks between pools or folds (question template, goal item).
    `answerable` is None where the notion does not apply. `gold` is the reference action (SQL), or
    None.
    """

    benchmark: str
    task_id: str
    group: str
    text: str
    answerable: bool | None = None
    gold: str | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def meta_json(self) -> str:
        """`meta` as canonical JSON, as the `tasks` table keeps it."""
        return json.dumps(dict(self.meta), sort_keys=True, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Step:
    """What the environment answers to one action.

    `observation` is exactly what the agent is shown; `rendered` is what the heads read (None: the
    same). `answer` is typed, JSON-safe text of an executed final answer; `success` is the
    environment's own verdict and is never inferred from `done`.
    """

    observation: str
    status: Status = "none"
    done: bool = False
    rendered: str | None = None
    n_rows: int | None = None
    n_cols: int | None = None
    answer: str | None = None
    error: str | None = None
    success: bool | None = None
    seconds: float = 0.0


class Environment(Protocol):
    """One episode's world. The runner owns the turn cap and calls `close` in a finally."""

    async def reset(self) -> str:
        """Start the task; returns the first user message."""
        ...

    async def step(self, action: Action) -> Step:
        """Carry out one well-formed action. Never called again after `done`."""
        ...

    async def close(self) -> None:
        """Release whatever the episode held."""
        ...


class Benchmark(Protocol):
    """A named set of tasks with an environment for each."""

    name: str
    dialect: Dialect
    max_turns: int

    def tasks(self) -> Sequence[Task]:
        """Every task, in a stable order; raises DataError when the data is missing or wrong."""
        ...

    def fingerprint(self) -> str:
        """Hash of everything an episode's outcome depends on: data, rules, clock, versions."""
        ...

    def system_prompt(self) -> str:
        """The harness instructions (no task text)."""
        ...

    def make_env(self, task: Task) -> Environment:
        """A fresh environment for one task."""
        ...

    def pools(self) -> Mapping[str, str] | None:
        """task_id → pool of the tasks that the data set places itself; None: it places none.

        `splits.make_pools` decides for the others."""
        ...

    def prepare(self, cache: Path) -> None:
        """Build what an environment needs (a database file) once, before any worker starts."""
        ...

    def close(self) -> None:
        """End helper processes (sandbox workers) that belong to this process."""
        ...


@runtime_checkable
class Trainable(Benchmark, Protocol):
    """A benchmark with an `agent` pool: tasks that no other pool holds, to train agents on."""

    def agent_questions(self, seed: int, n: int, *, unanswerable: float = ...) -> Sequence[Task]:
        """n questions to train and tune agents on, a share of them unanswerable."""
        ...


@runtime_checkable
class SqlTrainable(Trainable, Protocol):
    """A text-to-SQL benchmark to train agents on."""

    def sandbox(self) -> SandboxPool:
        """The sandbox over the benchmark's database."""
        ...


@runtime_checkable
class CraftTrainable(Trainable, Protocol):
    """A crafting benchmark to train agents on."""

    def recipe_book(self) -> RecipeBook:
        """The recipes, with the rules that carry out a command."""
        ...


def file_to_freeze(name: str, given: Path | None, own: Path | None) -> Path:
    """Where benchmark `name` writes its tasks: the file that was given, or its `tasks_file`.

    Raises UserError where there is neither.
    """
    path = given or own
    if path is None:
        raise UserError(f"{name}: no file to freeze the tasks to", "set tasks_file, or give --out")
    return path
