"""`TextcraftBenchmark`: TextCraft's goals over the user's recipe folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.agent.react import Action, Dialect
from sentinel.benchmarks.base import Environment, Step, Task, file_to_freeze
from sentinel.benchmarks.craft.environment import CraftEnvironment
from sentinel.benchmarks.craft.oracle import plan
from sentinel.benchmarks.craft.rules import RecipeBook
from sentinel.benchmarks.textcraft import frozen
from sentinel.benchmarks.textcraft.goals import Goal, draw_goal, make_goals, outlines
from sentinel.benchmarks.textcraft.presets import PRESETS
from sentinel.benchmarks.textcraft.recipes import SHA256_1_16_5, RecipeFolder, load_folder
from sentinel.errors import UserError

WITHHELD_EVERY = 7
POOL_SEED = 42
RULES_VERSION = 1
"""Raised whenever a rule changes what a command does."""
ROUNDS = 20

PROMPT = """\
You craft items as in Minecraft. The first message lists crafting commands, some of no use, and \
names a goal. Each of your replies is one short thought and exactly one action, each on its own \
line:

THOUGHT: <why this action>
ACTION: <one command>

COMMANDS
- get <n> <item>: take items that no command crafts, as many as you like.
- craft <n> <item> using <n> <item>, <n> <item>: use one of the listed commands once, with exactly \
its amounts. Where it names a kind of item (planks, wool), put one item of that kind, such as oak \
planks.
- inventory: look at what you hold.

RULES
- Hold every ingredient before you craft. To make more of an item, repeat its command.
- Never write an OBSERVATION yourself; it comes in the next message.
- The task ends when the goal is crafted. You have {max_turns} replies in all."""


class TextcraftEnvironment(CraftEnvironment):
    """`CraftEnvironment` over TextCraft's recipes; a comma need not be followed by a space."""

    async def step(self, action: Action) -> Step:
        """Carry out one command."""
        text = re.sub(r"\s*,\s*", ", ", action.text)
        return await super().step(Action(action.kind, text=text))


class TextcraftBenchmark:
    """Goals of TextCraft; the group of a task is its goal item.

    `recipes_path` is the user's recipe folder or a tar archive of it, of the hash `recipes_sha256`
    (None: Minecraft 1.16.5's, as published). `preset` names the published rules (`PRESETS`).
    `tasks_file` holds the frozen tasks; None makes them anew, which gives the same ones, by `seed`.
    `max_turns` caps an episode. Wrong values raise UserError.
    """

    dialect = Dialect(act="ACTION", final=None, abstain=None)

    def __init__(
        self,
        name: str = "textcraft",
        *,
        recipes_path: str,
        preset: str = "agentgym",
        tasks_file: str | None = None,
        seed: int = 0,
        recipes_sha256: str | None = None,
        max_turns: int = ROUNDS,
    ) -> None:
        if preset not in PRESETS:
            raise UserError(
                f"{name}: unknown preset {preset!r}", f"use one of: {', '.join(PRESETS)}"
            )
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise UserError(f"{name}: max_turns is {max_turns!r}", "set it to at least 1")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UserError(f"{name}: seed is {seed!r}", "set it to an integer")
        self.name, self.preset, self.seed = name, PRESETS[preset], seed
        self.max_turns = max_turns
        self.recipes_path = Path(recipes_path).absolute()
        self.recipes_sha256 = recipes_sha256 or SHA256_1_16_5
        self.tasks_file = None if tasks_file is None else Path(tasks_file).absolute()

    @cached_property
    def folder(self) -> RecipeFolder:
        """The recipes, as they were when first asked for.

        Raises DataError for a folder that cannot be used.
        """
        return load_folder(self.recipes_path, self.recipes_sha256)

    def recipe_book(self) -> RecipeBook:
        """The rules of this world."""
        return self.folder.book

    @cached_property
    def goals(self) -> Mapping[str, Goal]:
        """Task id → goal, from the task file where one is named."""
        return self._frozen[0]

    @cached_property
    def _frozen(self) -> tuple[dict[str, Goal], str]:
        if self.tasks_file is None:
            goals = make_goals(self.folder.book, self.preset, self.seed)
            return goals, frozen.content_hash(self._content(goals))
        return frozen.read(
            self.tasks_file,
            recipes=self.folder.sha256,
            preset=self.preset.name,
            seed=self.seed,
        )

    def _content(self, goals: Mapping[str, Goal]) -> dict[str, Any]:
        """What a task file says."""
        return frozen.content(
            goals,
            recipes=self.folder.sha256,
            preset=self.preset.name,
            seed=self.seed,
        )

    def freeze(self, path: Path | None = None) -> Path:
        """Write the task file, to `tasks_file` unless another is named; returns where.

        Raises UserError where neither is given.
        """
        path = file_to_freeze(self.name, path, self.tasks_file)
        goals = make_goals(self.folder.book, self.preset, self.seed)
        frozen.write(self._content(goals), path)
        return path

    def tasks(self) -> Sequence[Task]:
        """Every goal in the preset's order; the id is the item."""
        return [self._task(task_id, goal) for task_id, goal in self.goals.items()]

    def agent_questions(self, seed: int, n: int, *, unanswerable: float = 0.0) -> Sequence[Task]:
        """The `agent` pool: n different tasks to train and tune agents on, ids `a00000`, …

        The goal items that are not `withheld_groups()`, never with the commands that a frozen task
        lists for them, in whatever order: an item with ten commands of no use or fewer has but
        that one set, and is left out. Every goal can be crafted: `unanswerable` must be 0.
        """
        if unanswerable:
            raise UserError(f"{self.name} has no unanswerable goals", "set unanswerable to 0")
        if not 1 <= n <= 100_000:
            raise UserError(f"{self.name}: {n} agent tasks", "ask for 1 to 100000")
        asked = {goal.question for goal in self.goals.values()}
        taken: set[str] = set()
        items = {goal.goal for goal in self.goals.values()} - self.withheld_groups()
        pool = [o for item, o in outlines(self.folder.book).items() if item in items]
        rng = np.random.default_rng(seed)
        found: list[Task] = []
        for _ in range(20 * n):
            goal = draw_goal(pool[int(rng.integers(len(pool)))], rng)
            if goal.question not in asked and goal.text not in taken:
                taken.add(goal.text)
                found.append(self._task(f"a{len(found):05d}", goal))
            if len(found) == n:
                return tuple(found)
        raise UserError(f"{self.name} has fewer than {n} different agent tasks", "ask for fewer")

    def withheld_groups(self) -> frozenset[str]:
        """Every seventh goal item, in the order in which pools are filled: no agent trains on
        it, and all pools hold some."""
        items = sorted({goal.goal for goal in self.goals.values()})
        np.random.Generator(np.random.PCG64(POOL_SEED)).shuffle(items)
        return frozenset(items[3::WITHHELD_EVERY])

    def oracle(self, task: Task) -> list[str]:
        """Commands that solve a task; a few need more than the cap allows (`steps`)."""
        return plan(self.folder.book, task.meta["goal"])

    def pools(self) -> Mapping[str, str] | None:
        """None: pools are drawn by group."""
        return None

    def fingerprint(self) -> str:
        """Hash of the recipes, the frozen tasks, the rules, the cap and the prompt."""
        parts = (self.folder.sha256, self._frozen[1], RULES_VERSION, self.max_turns)
        text = "\n".join(map(str, (*parts, self.system_prompt())))
        return hashlib.sha256(text.encode()).hexdigest()

    def system_prompt(self) -> str:
        """Commands, rules and the form of a reply, for models that were not trained on them."""
        return PROMPT.format(max_turns=self.max_turns)

    def make_env(self, task: Task) -> Environment:
        """A fresh environment; all share the immutable recipe book."""
        return TextcraftEnvironment(self.folder.book, task.meta["goal"], 1, task.text)

    def prepare(self, cache: Path) -> None:
        """Nothing to build; recipes and task file are read and checked."""
        del cache
        _ = self.goals

    def close(self) -> None:
        """Nothing runs beside this process."""

    def _task(self, task_id: str, goal: Goal) -> Task:
        meta = {**goal.to_dict(), "count": 1}
        return Task(self.name, task_id, goal.goal, goal.text, meta=meta)
