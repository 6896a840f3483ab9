"""`CraftBenchmark`: the embedded crafting world as a set of tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.agent.react import Dialect
from sentinel.benchmarks.base import Environment, Task
from sentinel.benchmarks.craft.environment import CraftEnvironment
from sentinel.benchmarks.craft.frozen import FILE, World, load_world
from sentinel.benchmarks.craft.goals import Goal, draw_goal, goal_items
from sentinel.benchmarks.craft.oracle import plan
from sentinel.benchmarks.craft.rules import RecipeBook
from sentinel.errors import UserError

WITHHELD_EVERY = 7
POOL_SEED = 42
RULES_VERSION = 1
"""Raised whenever a rule changes what a command does."""

PROMPT = """\
You craft items. The first message names a goal and lists crafting commands; some are of no use \
for it. Each of your replies is one short thought and exactly one action, each on its own line:

THOUGHT: <why this action>
ACTION: <one command>

COMMANDS
- get <n> <item>: take items that no recipe makes, as many as you like.
- craft <n> <item> using <n> <item>, <n> <item>: use one of the listed commands once, with exactly \
its amounts. Where it names a kind of item (a plank, a nail, a rope), put one item of that kind, \
such as oak plank.
- inventory: look at what you hold.

RULES
- Hold every ingredient before you craft. To make several of an item, repeat its command.
- Never write an OBSERVATION yourself; it comes in the next message.
- The task ends when the goal is crafted. You have {max_turns} replies in all."""


class CraftBenchmark:
    """Goals of the frozen crafting world; the group of a task is its goal item.

    `file` names another world file of the same format; `n_tasks` keeps the first so many tasks of
    it (None: all). Wrong values raise UserError.
    """

    dialect = Dialect(act="ACTION", final=None, abstain=None)
    max_turns = 20

    def __init__(
        self,
        name: str = "craft",
        *,
        file: str | None = None,
        n_tasks: int | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise UserError(
                f"craft: unknown settings {', '.join(sorted(unknown))}",
                "valid are name, file, n_tasks",
            )
        if not isinstance(name, str) or not name:
            raise UserError("craft: name must be text", "correct the benchmark's config")
        if n_tasks is not None and (isinstance(n_tasks, bool) or not isinstance(n_tasks, int)):
            raise UserError(
                f"craft: n_tasks is {n_tasks!r}", "set it to an integer, or leave it out"
            )
        if n_tasks is not None and n_tasks < 1:
            raise UserError(f"craft: n_tasks is {n_tasks}", "set n_tasks to at least 1")
        self.name, self.n_tasks = name, n_tasks
        self.file = FILE if file is None else Path(file).absolute()

    @property
    def world(self) -> World:
        """Recipes and goals. Raises DataError when the file was changed or cannot be read."""
        return load_world(self.file)

    def tasks(self) -> Sequence[Task]:
        """Every frozen task in a stable order, ids `k0000`, `k0001`, …"""
        return self._tasks

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        goals = list(self.world.goals.items())[: self.n_tasks]
        return tuple(self._task(task_id, goal) for task_id, goal in goals)

    def agent_questions(self, seed: int, n: int, *, unanswerable: float = 0.0) -> Sequence[Task]:
        """The `agent` pool: n different tasks to train and tune agents on, ids `a00000`, …

        Drawn like the frozen ones, of the goal items that are not `withheld_groups()`, and never
        the text of a frozen task. Every goal of this world can be crafted: `unanswerable` must
        be 0.
        """
        if unanswerable:
            raise UserError("craft has no unanswerable goals", "set unanswerable to 0")
        if not 1 <= n <= 100_000:
            raise UserError(f"craft: {n} agent tasks", "ask for 1 to 100000")
        book = self.world.book
        taken = {goal.text for goal in self.world.goals.values()}
        items = [i for i in goal_items(book) if i not in self.withheld_groups()]
        rng = np.random.default_rng(seed)
        found: list[Task] = []
        for _ in range(20 * n):
            goal = draw_goal(book, items[int(rng.integers(len(items)))], rng)
            if goal.text not in taken:
                taken.add(goal.text)
                found.append(self._task(f"a{len(found):05d}", goal))
            if len(found) == n:
                return tuple(found)
        raise UserError(f"craft has fewer than {n} different agent tasks", "ask for fewer")

    def withheld_groups(self) -> frozenset[str]:
        """Every seventh goal item, in the order in which pools are filled: about 14 %, no agent
        trains on it, and all pools hold some."""
        items = sorted({goal.goal for goal in self.world.goals.values()})
        np.random.Generator(np.random.PCG64(POOL_SEED)).shuffle(items)
        return frozenset(items[3::WITHHELD_EVERY])

    def oracle(self, task: Task, *, backward: bool = False) -> list[str]:
        """Commands that solve a task, with the carriers of tags that its listing names."""
        prefer = {command.split(" using ")[0].split(" ", 2)[2] for command in task.meta["commands"]}
        meta = task.meta
        return plan(self.world.book, meta["goal"], meta["count"], backward=backward, prefer=prefer)

    def recipe_book(self) -> RecipeBook:
        """The rules of this world."""
        return self.world.book

    def pools(self) -> Mapping[str, str] | None:
        """None: pools are drawn by group."""
        return None

    def fingerprint(self) -> str:
        """Hash of the frozen recipes and tasks, the rules, the cap and the prompt."""
        parts = [
            self.world.sha256,
            RULES_VERSION,
            self.max_turns,
            self.n_tasks,
            self.system_prompt(),
        ]
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()

    def system_prompt(self) -> str:
        """Commands, rules and the form of a reply, for models that were not trained on them."""
        return PROMPT.format(max_turns=self.max_turns)

    def make_env(self, task: Task) -> Environment:
        """A fresh environment; all share the immutable recipe book."""
        meta = task.meta
        return CraftEnvironment(self.world.book, meta["goal"], meta["count"], task.text)

    def prepare(self, cache: Path) -> None:
        """Nothing to build; the frozen file is read and checked."""
        del cache
        _ = self.world

    def close(self) -> None:
        """Nothing runs beside this process."""

    def _task(self, task_id: str, goal: Goal) -> Task:
        meta = {
            "goal": goal.goal,
            "count": goal.count,
            "commands": list(goal.commands),
            "depth": goal.depth,
            "steps": goal.steps,
        }
        return Task(self.name, task_id, goal.goal, goal.text, meta=meta)
