"""Goals of TextCraft: an item, the commands that are listed with it, and how hard it is.

A goal's listing is a function of the recipes, a seed and the goal alone: not of the order of files,
of other goals, of the process or of its hash seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sentinel.benchmarks.craft.oracle import depth, plan
from sentinel.benchmarks.craft.rules import Recipe, RecipeBook
from sentinel.benchmarks.textcraft.presets import MAX_DISTRACTORS, Preset


@dataclass(frozen=True, slots=True)
class Goal:
    """One task. `commands` are listed in their order; `depth` and `steps` are the oracle's."""

    goal: str
    commands: tuple[str, ...]
    depth: int
    steps: int

    @property
    def text(self) -> str:
        """What the agent is told first, in the published form."""
        return "\n".join(["Crafting commands:", *self.commands, "", f"Goal: craft {self.goal}."])

    @property
    def question(self) -> tuple[str, frozenset[str]]:
        """What is asked, whatever the order of the listing: goal and listed commands."""
        return self.goal, frozenset(self.commands)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self) | {"commands": list(self.commands)}


@dataclass(frozen=True, slots=True)
class Outline:
    """What the listings of one item are drawn from: the commands below it, and those that use the
    same ingredients and are of no use. Both sorted."""

    item: str
    wanted: tuple[str, ...]
    others: tuple[str, ...]
    depth: int
    steps: int


def outlines(book: RecipeBook) -> dict[str, Outline]:
    """Every item that a recipe makes, sorted, with its outline."""
    uses: dict[str, set[str]] = {}
    for recipe in book.recipes:
        for part in recipe.parts:
            uses.setdefault(part.name, set()).add(recipe.command())
    found = {}
    for item in sorted(book.makes):
        recipes = below(book, item)
        wanted = {r.command() for r in recipes}
        others = {c for r in recipes for p in r.parts for c in uses[p.name]} - wanted
        found[item] = Outline(
            item,
            tuple(sorted(wanted)),
            tuple(sorted(others)),
            depth(book, item),
            len(plan(book, item)),
        )
    return found


def make_goals(book: RecipeBook, preset: Preset, seed: int) -> dict[str, Goal]:
    """Task id (the item with underscores) → goal, in the preset's order, then by name."""
    found = [o for o in outlines(book).values() if o.depth >= preset.min_depth]
    found.sort(key=lambda o: (-o.depth if preset.deepest_first else o.depth, o.item))
    return {o.item.replace(" ", "_"): draw_goal(o, goal_rng(seed, o.item)) for o in found}


def draw_goal(outline: Outline, rng: np.random.Generator) -> Goal:
    """One listing: every command below the item, at most ten of no use, in any order."""
    chosen = rng.permutation(len(outline.others))[:MAX_DISTRACTORS]
    commands = [*outline.wanted, *(outline.others[i] for i in chosen)]
    order = rng.permutation(len(commands))
    listed = tuple(commands[i] for i in order)
    return Goal(outline.item, listed, outline.depth, outline.steps)


def below(book: RecipeBook, item: str) -> list[Recipe]:
    """Every recipe that some way of making the item may use, its own included."""
    found: list[Recipe] = []
    seen: set[str] = set()
    open_names = [item]
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        for carrier in book.carriers(name):
            for recipe in book.makes.get(carrier, ()):
                if recipe not in found:
                    found.append(recipe)
                    open_names += [p.name for p in recipe.parts]
    return found


def goal_rng(seed: int, item: str) -> np.random.Generator:
    """Randomness that depends on nothing but a seed and an item."""
    digest = hashlib.sha256(f"{seed}/textcraft/{item}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
