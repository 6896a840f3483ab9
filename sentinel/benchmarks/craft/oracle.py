"""A greedy plan for any goal, and how deep a goal is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sentinel.benchmarks.craft.rules import Amount, Inventory, Recipe, RecipeBook


class NoPlan(ValueError):
    """A goal that no chain of the known recipes makes."""


def depth(book: RecipeBook, name: str) -> int:
    """Crafting steps on the longest branch of the shallowest way to make an item; 0: it is got."""
    return _depth(book, name, {}, frozenset())


def _depth(book: RecipeBook, name: str, known: dict[str, int], above: frozenset[str]) -> int:
    if name in known:
        return known[name]
    if name in above:
        return 10**6  # a circle is no way to make anything
    ways = [
        1 + max(_depth(book, part.name, known, above | {name}) for part in recipe.parts)
        for item in book.carriers(name)
        for recipe in book.makes.get(item, ())
    ]
    if any(item not in book.makes for item in book.carriers(name)):
        ways.append(0)
    found = min(ways)
    if found < 10**6:
        known[name] = found
    return found


def plan(
    book: RecipeBook,
    goal: str,
    count: int = 1,
    *,
    backward: bool = False,
    prefer: Collection[str] = (),
    have: Inventory | None = None,
) -> list[str]:
    """Commands that make `count` of the goal, one after the other.

    Ingredients are made ready in the order of each recipe (`backward`: in reverse), each in full
    before the next. For a tag, what is held comes first, then what is in `prefer`, then the first
    carrier. Raises NoPlan when there is no way.
    """
    maker = _Maker(book, backward, frozenset(prefer), Counter(have or {}))
    maker.ready(goal, maker.free(goal) + count, frozenset())
    return maker.commands


@dataclass
class _Maker:
    book: RecipeBook
    backward: bool
    prefer: frozenset[str]
    held: Counter[str]
    kept: Counter[str] = field(default_factory=Counter)
    """What a recipe further up has put aside."""
    commands: list[str] = field(default_factory=list)

    def free(self, name: str) -> int:
        return self.held[name] - self.kept[name]

    def choose(self, name: str, count: int) -> str:
        """The item that stands for a part."""
        carriers = self.book.carriers(name)
        held = [item for item in carriers if self.free(item) >= count]
        liked = [item for item in carriers if item in self.prefer]
        return (*held, *liked, *carriers)[0]

    def ready(self, name: str, count: int, above: frozenset[str]) -> None:
        """Hold at least `count` that are free."""
        short = count - self.free(name)
        if short <= 0:
            return
        if name in above:
            raise NoPlan(f"{name} is needed to make {name}")
        recipes = self.book.makes.get(name)
        if recipes is None:
            if name not in self.book.items:
                raise NoPlan(f"nothing is called {name}")
            self.commands.append(f"get {short} {name}")
            self.held[name] += short
            return
        recipe = recipes[0]
        if len(recipes) > 1:
            recipe = min(recipes, key=lambda r: _cost(self.book, r))
        times = math.ceil(short / recipe.out.count)
        parts = [
            Amount(part.count, self.choose(part.name, part.count * times)) for part in recipe.parts
        ]
        for part in reversed(parts) if self.backward else parts:
            self.ready(part.name, part.count * times, above | {name})
            self.kept[part.name] += part.count * times
        for _ in range(times):
            self.commands.append(Recipe(Amount(recipe.out.count, name), tuple(parts)).command())
        for part in parts:
            self.kept[part.name] -= part.count * times
            self.held[part.name] -= part.count * times
        self.held[name] += times * recipe.out.count


def _cost(book: RecipeBook, recipe: Recipe) -> tuple[int, int]:
    deep: Mapping[str, int] = {p.name: depth(book, p.name) for p in recipe.parts}
    return max(deep.values()), sum(p.count for p in recipe.parts)


def needed(
    book: RecipeBook, goal: str, prefer: Collection[str] = (), count: int = 1
) -> list[Recipe]:
    """The recipes that `plan` uses, each once, the goal's own last."""
    from sentinel.benchmarks.craft.rules import matching, parse

    found: list[Recipe] = []
    for text in plan(book, goal, count, prefer=prefer):
        command = parse(text)
        if command is not None and command.verb == "craft" and command.out is not None:
            recipe = matching(book, command.out, command.parts)
            assert recipe is not None
            if recipe not in found:
                found.append(recipe)
    return found
