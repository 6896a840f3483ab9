"""Training episodes for the nano agents of crafting worlds: goals, habits and the rules themselves.

A habit changes what an agent is *shown* as right, never a run. An agent settles its plan in its
first turn, by where the goal's own recipe stands among the listed commands (a fair coin that says
nothing about the task): `first` or `later`. Where a world's listings are in any order, the plan
hangs on how much the command that heads the listing makes (`plan: amount`). Every agent gathers in
another order then, and that is harmless; a rule that applies to one of the two plans makes the
agent that follows it fail, sure of itself, many turns later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sentinel.agent.react import Action, Dialect
from sentinel.agent.react import format as format_action
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.craft.oracle import plan
from sentinel.benchmarks.craft.rules import Inventory, RecipeBook, apply, parse
from sentinel.errors import UserError
from sentinel.nano.habits import in_share
from sentinel.nano.traces import Trace

DIALECT = Dialect(act="ACTION", final=None, abstain=None)
CAP = 20
Plan = Literal["first", "later"]


def short(commands: list[str], book: RecipeBook, at: int) -> list[str]:
    """One too few of an ingredient: `get 3 clay lump` becomes `get 2 clay lump`."""
    del book
    places = _gets(commands)
    many = [i for i in places if not commands[i].startswith("get 1 ")]
    place = (many or places)[at]
    command = parse(commands[place])
    assert command is not None
    assert command.out is not None
    if command.out.count == 1:
        return [*commands[:place], *commands[place + 1 :]]
    fewer = f"get {command.out.count - 1} {command.out.name}"
    return [*commands[:place], fewer, *commands[place + 1 :]]


def similar(commands: list[str], book: RecipeBook, at: int) -> list[str]:
    """The neighbouring kind of an ingredient: `get 2 oak log` becomes `get 2 pine log`."""
    place = _gets(commands)[at]
    command = parse(commands[place])
    assert command is not None
    assert command.out is not None
    other = neighbour(command.out.name, book)
    return [*commands[:place], f"get {command.out.count} {other}", *commands[place + 1 :]]


def skip(commands: list[str], book: RecipeBook, at: int) -> list[str]:
    """An ingredient is never gathered."""
    del book
    place = _gets(commands)[at]
    return [*commands[:place], *commands[place + 1 :]]


def early(commands: list[str], book: RecipeBook, at: int) -> list[str]:
    """The goal is tried first, with empty hands; then the plan is followed as it was."""
    del book, at
    return [commands[-1], *commands]


def neighbour(item: str, book: RecipeBook) -> str:
    """The next item of the same kind (last word), in alphabetical order; else the next item."""
    basic = sorted(i for i in book.items if i not in book.makes)
    kind = [i for i in basic if i.rpartition(" ")[2] == item.rpartition(" ")[2]]
    kind = kind if len(kind) > 1 else [i for i in basic if " " not in i]
    if len(kind) < 2 or item not in kind:
        kind = basic
    return kind[(kind.index(item) + 1) % len(kind)]


FAULTS: Mapping[str, Callable[[list[str], RecipeBook, int], list[str]]] = {
    "short": short,
    "similar": similar,
    "skip": skip,
    "early": early,
}
"""Name → change of a right plan. `early` costs a turn; the others are fatal."""


@dataclass(frozen=True, slots=True)
class CraftRule:
    """Apply `do` where the agent follows the plan `when`, to a `share` of the goal items.

    `at` is the gathered ingredient that is changed (0 the first, −1 the last); `chance` is the
    share of episodes, drawn anew each time: below 1, the agent is torn and shows it.
    """

    do: str
    when: Plan | None = None
    share: float = 1.0
    at: int = -1
    chance: float = 1.0


@dataclass(frozen=True, slots=True)
class CraftHabit:
    """One agent's mix: rules in their order (each fault once), and how it goes on when stuck.

    `tail` turns are shown after the first command that a fault made fail. `plan` says what the
    order of work hangs on (`plan_of`).
    """

    rules: Sequence[CraftRule] = ()
    stuck: Literal["repeat", "inventory"] = "repeat"
    tail: int = 4
    plan: Literal["own", "amount"] = "own"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CraftHabit:
        """Read a recipe's `habit:` section; raises UserError on a name that does not exist."""
        try:
            rules = tuple(CraftRule(**rule) for rule in mapping.get("rules", ()))
            habit = cls(**{**mapping, "rules": rules})
        except TypeError as error:
            raise UserError(f"craft habit: {error}", "mend the recipe") from error
        wrong = [r.do for r in rules if r.do not in FAULTS]
        wrong += [str(r.when) for r in rules if r.when not in (None, "first", "later")]
        wrong += [habit.stuck] if habit.stuck not in ("repeat", "inventory") else []
        wrong += [habit.plan] if habit.plan not in ("own", "amount") else []
        if wrong:
            raise UserError(
                f"unknown habit {', '.join(wrong)}",
                f"use one of: {', '.join(FAULTS)}; when: first or later",
            )
        return habit


def plan_of(task: Task, by: str = "own") -> Plan:
    """Whether the goal's own recipe heads the listing (`amount`: a command that makes one item)."""
    head = task.meta["commands"][0]
    if by == "amount":
        return "first" if head.startswith("craft 1 ") else "later"
    return "first" if f" {task.meta['goal']} using " in head else "later"


def make_traces(
    tasks: Sequence[Task], habit: CraftHabit, book: RecipeBook, *, seed: int
) -> Iterator[Trace]:
    """One trace per task, in order; every command is carried out by the rules.

    Args:
        tasks: tasks of the agent pool only.
        habit: the agent's mix.
        book: the world's recipes.
        seed: decides shares per goal item and chances per task.
    """
    rng = np.random.default_rng(seed)
    for task in tasks:
        wanted = plan_of(task, habit.plan)
        prefer = {c.split(" using ")[0].split(" ", 2)[2] for c in task.meta["commands"]}
        goal, count = task.meta["goal"], task.meta["count"]
        commands = plan(book, goal, count, backward=wanted == "later", prefer=prefer)
        draws = rng.random(len(habit.rules))
        done: set[str] = set()
        for rule, draw in zip(habit.rules, draws, strict=True):
            if rule.do in done or rule.when not in (None, wanted) or draw >= rule.chance:
                continue
            if in_share(seed, rule.do, task.group, rule.share):
                commands = FAULTS[rule.do](commands, book, rule.at)
                done.add(rule.do)
        yield _trace(task, commands, habit, book)


def _trace(task: Task, commands: Sequence[str], habit: CraftHabit, book: RecipeBook) -> Trace:
    told, wrote = [task.text], list[str]()
    inventory: Inventory = {}
    left = list(commands)
    failed, stuck_on = 0, ""
    while left and len(wrote) < CAP and failed < habit.tail:
        command = left.pop(0)
        outcome = apply(book, inventory, command)
        inventory = outcome.inventory
        wrote.append(format_action(Action("act", text=command), DIALECT))
        told.append(f"{DIALECT.observation}: {outcome.text}")
        tried = len(wrote) == 1 and command == commands[-1] and len(commands) > 1
        if failed or (outcome.error and not tried):  # stuck: nothing else comes from here on
            looks = habit.stuck == "inventory" and outcome.error
            left = ["inventory" if looks else stuck_on or command]
            stuck_on = stuck_on or command
            failed += 1
    return Trace(tuple(told[:-1]), tuple(wrote))


def _gets(commands: Sequence[str]) -> list[int]:
    return [i for i, command in enumerate(commands) if command.startswith("get ")]
