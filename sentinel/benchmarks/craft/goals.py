"""Tasks of a crafting world: a goal with a count, and the commands that are listed with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sentinel.benchmarks.craft.oracle import depth, needed, plan
from sentinel.benchmarks.craft.rules import Recipe, RecipeBook

SHORTEST, LONGEST = 3, 13
"""Commands that the plan of a task may need: every goal can be reached well within the cap."""
MOST_LISTED = 8
COUNTS: Mapping[int, float] = {1: 0.7, 2: 0.3}


@dataclass(frozen=True, slots=True)
class Goal:
    """One task. `commands` are shown in their order; `depth` and `steps` are the oracle's."""

    goal: str
    count: int
    commands: tuple[str, ...]
    depth: int
    steps: int

    @property
    def text(self) -> str:
        """What the agent is told first."""
        lines = [f"Goal: craft {self.count} {self.goal}.", "Crafting commands:", *self.commands]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self) | {"commands": list(self.commands)}


def goal_items(book: RecipeBook) -> list[str]:
    """Items worth a task: their plan is neither trivial nor too long. Sorted."""
    return sorted(item for item in book.makes if SHORTEST <= len(plan(book, item)) <= LONGEST)


def draw_goal(book: RecipeBook, item: str, rng: np.random.Generator) -> Goal:
    """One task for a goal item: count, which carriers of its tags are listed, distractors, order.

    Whether the goal's own recipe is listed first is a fair coin for every item and depth: it says
    nothing about how hard a task is.
    """
    prefer = [str(rng.choice(items)) for items in book.tags.values()]
    count = int(rng.choice(list(COUNTS), p=list(COUNTS.values())))
    wanted = needed(book, item, prefer)
    wanted = needed(
        book, item, {r.out.name for r in wanted}
    )  # what is made anyway serves a tag too
    made = {r.out.name for r in wanted}
    while count > 1 and len(plan(book, item, count, prefer=made)) > LONGEST:
        count -= 1
    others = _distractors(
        book, wanted, rng, min(int(rng.integers(1, 4)), MOST_LISTED - len(wanted))
    )
    own = next(r for r in wanted if r.out.name == item)
    rest = [r for r in (*wanted, *others) if r is not own]
    rest = [rest[i] for i in rng.permutation(len(rest))]
    at = 0 if rng.random() < 0.5 else int(rng.integers(1, len(rest) + 1))
    rest.insert(at, own)
    return Goal(
        goal=item,
        count=count,
        commands=tuple(r.command() for r in rest),
        depth=depth(book, item),
        steps=len(plan(book, item, count, prefer=made)),
    )


def _distractors(
    book: RecipeBook, wanted: Sequence[Recipe], rng: np.random.Generator, n: int
) -> list[Recipe]:
    """Recipes that use or resemble what the goal needs and are not needed themselves.

    None makes another carrier of a tag that the goal needs: the listing would not say how to go on.
    """
    carriers = {
        item for r in wanted for p in r.parts for item in book.carriers(p.name) if item != p.name
    }
    names = {p.name for r in wanted for p in r.parts} | {r.out.name for r in wanted}
    words = {w for name in names for w in name.split()}
    near = [
        r
        for r in book.recipes
        if r not in wanted
        and r.out.name not in carriers
        and (names & {p.name for p in r.parts} or words & set(r.out.name.split()))
    ]
    chosen = rng.permutation(len(near))[: max(1, n)]
    return [near[i] for i in chosen]
