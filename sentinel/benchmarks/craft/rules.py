"""Crafting rules over any set of recipes: three commands, exact ingredients, tags.

    craft <n> <item> using <n> <item>, <n> <item>
    get <n> <item>
    inventory

`get` gives only what no recipe makes. `craft` needs the exact ingredients of one recipe, all of
them in the inventory; an ingredient that is a tag takes any one item that carries it. The number
before the crafted item is read and, as in the original environment, not compared (`check_output`
compares it): one command is one use of a recipe. Nothing here holds state: the book is immutable
and an inventory goes in and comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Inventory = Mapping[str, int]
"""Item → how many, without zeros."""
Verb = Literal["craft", "get", "inventory"]
MAX_COUNT = 999
"""A larger number in a command is no command."""

_COMMAND = re.compile(r"(?:craft (?P<out>.+?) using (?P<parts>.+)|get (?P<get>.+)|inventory)")
_AMOUNT = re.compile(r"(?P<count>[0-9]{1,3}) (?P<name>\S.*)")


@dataclass(frozen=True, slots=True)
class Amount:
    """So many of one item (or, in a recipe, of one tag)."""

    count: int
    name: str

    def __str__(self) -> str:
        return f"{self.count} {self.name}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make `out`; the names of its parts differ."""

    out: Amount
    parts: tuple[Amount, ...]

    def command(self) -> str:
        """As it is listed: `craft 1 oak chest using 3 plank, 2 iron nail`."""
        return f"craft {self.out} using {', '.join(map(str, self.parts))}"


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command: `craft` has an output and parts, `get` an output only."""

    verb: Verb
    out: Amount | None = None
    parts: tuple[Amount, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did: the inventory after it, the answer in words, and what was crafted.

    `error` is True where nothing happened; the answer then says so with the word `error`.
    """

    inventory: Inventory
    text: str
    error: bool = False
    crafted: Amount | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """How a world answers; `{name}`, `{count}`, `{id}` (name with underscores) and `{text}` are
    filled in."""

    unknown: str = "error: invalid action"
    not_gettable: str = "error: cannot get {name}"
    short: str = "error: not enough items for {name}"
    no_recipe: str = "error: no such recipe for {name}"
    got: str = "Got {count} {name}"
    crafted: str = "Crafted {count} {name}"

    def say(self, template: str, amount: Amount | None = None, text: str = "") -> str:
        """One answer."""
        name = "" if amount is None else amount.name
        count = 0 if amount is None else amount.count
        return template.format(name=name, count=count, id=name.replace(" ", "_"), text=text)


@dataclass(frozen=True)
class RecipeBook:
    """An immutable set of recipes with the tags that their parts may name.

    `extra` are items that no recipe names and that can be got; `words` is how the world answers.

    Raises ValueError for a recipe without parts, with a count below 1 or with a part named twice,
    for a tag without items, and for a name that is an item and a tag.
    """

    recipes: tuple[Recipe, ...]
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    check_output: bool = False
    extra: frozenset[str] = frozenset()
    words: Words = Words()
    makes: Mapping[str, tuple[Recipe, ...]] = field(init=False)
    """Item → its recipes, in their order."""
    items: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        makes: dict[str, tuple[Recipe, ...]] = {}
        names: set[str] = set()
        for recipe in self.recipes:
            parts = [p.name for p in recipe.parts]
            counts = [recipe.out.count, *(p.count for p in recipe.parts)]
            if not parts or len(set(parts)) < len(parts) or min(counts) < 1:
                raise ValueError(f"not a recipe: {recipe.command()}")
            makes[recipe.out.name] = (*makes.get(recipe.out.name, ()), recipe)
            names |= {recipe.out.name, *parts}
        carried = {item for items in self.tags.values() for item in items}
        both = self.tags.keys() & (carried | makes.keys())
        if both or not all(self.tags.values()):
            raise ValueError(f"tags that are items or empty: {sorted(both)}")
        tags = {tag: tuple(items) for tag, items in sorted(self.tags.items())}
        object.__setattr__(self, "tags", MappingProxyType(tags))
        object.__setattr__(self, "makes", MappingProxyType(makes))
        object.__setattr__(self, "items", frozenset((names | carried | self.extra) - tags.keys()))

    def carriers(self, name: str) -> tuple[str, ...]:
        """Items that may stand for a part: those of the tag, or the item itself."""
        return self.tags.get(name, (name,))

    def craftable(self, name: str) -> bool:
        """Whether a recipe makes this item (or, for a tag, any item that carries it)."""
        return any(item in self.makes for item in self.carriers(name))


def parse(text: str) -> Command | None:
    """Read one command; None for anything else. Case and spaces around words do not matter.

    >>> parse("get 2 oak log")
    Command(verb='get', out=Amount(count=2, name='oak log'), parts=())
    >>> parse("look around") is None
    True
    """
    match = _COMMAND.fullmatch(" ".join(text.lower().split()))
    if match is None:
        return None
    if match["get"] is not None:
        out = _amount(match["get"])
        return None if out is None else Command("get", out)
    if match["out"] is None:
        return Command("inventory")
    # the number before the crafted item may be left out
    out = _amount(match["out"]) or Amount(1, match["out"])
    parts = [_amount(part) for part in match["parts"].split(", ")]
    if any(part is None for part in parts):
        return None
    return Command("craft", out, tuple(part for part in parts if part is not None))


def apply(book: RecipeBook, inventory: Inventory, text: str) -> Outcome:
    """Carry out one command; neither the book nor the given inventory is changed."""
    command = parse(text)
    if command is None:
        return Outcome(inventory, book.words.say(book.words.unknown, text=text), error=True)
    if command.verb == "inventory":
        return Outcome(inventory, describe(inventory))
    assert command.out is not None
    if command.verb == "get":
        return _get(book, inventory, command.out)
    return _craft(book, inventory, command.out, command.parts)


def describe(inventory: Inventory) -> str:
    """The inventory in words, sorted by item."""
    if not inventory:
        return "Inventory: You are not carrying anything."
    held = " ".join(f"[{name}] ({inventory[name]})" for name in sorted(inventory))
    return f"Inventory: {held}"


def matching(book: RecipeBook, out: Amount, parts: Sequence[Amount]) -> Recipe | None:
    """The first recipe whose parts are exactly these, tags resolved, in any order."""
    for recipe in book.makes.get(out.name, ()):
        if book.check_output and recipe.out.count != out.count:
            continue
        if len(parts) == len(recipe.parts) and _assign(book, recipe.parts, list(parts)):
            return recipe
    return None


def totals(parts: Iterable[Amount]) -> dict[str, int]:
    """Counts summed by name."""
    found: dict[str, int] = {}
    for part in parts:
        found[part.name] = found.get(part.name, 0) + part.count
    return found


def _assign(book: RecipeBook, wanted: Sequence[Amount], given: list[Amount]) -> bool:
    if not wanted:
        return not given
    first, *others = wanted
    for i, part in enumerate(given):
        fits = part.count == first.count and part.name in book.carriers(first.name)
        if fits and _assign(book, others, given[:i] + given[i + 1 :]):
            return True
    return False


def _get(book: RecipeBook, inventory: Inventory, out: Amount) -> Outcome:
    if out.name not in book.items or out.name in book.makes or out.count < 1:
        return Outcome(inventory, book.words.say(book.words.not_gettable, out), error=True)
    text = book.words.say(book.words.got, out)
    return Outcome(_changed(inventory, {out.name: out.count}), text)


def _craft(book: RecipeBook, inventory: Inventory, out: Amount, parts: Sequence[Amount]) -> Outcome:
    used = totals(parts)
    if any(inventory.get(name, 0) < count for name, count in used.items()):
        return Outcome(inventory, book.words.say(book.words.short, out), error=True)
    recipe = matching(book, out, parts)
    if recipe is None:
        return Outcome(inventory, book.words.say(book.words.no_recipe, out), error=True)
    change = {name: -count for name, count in used.items()}
    change[recipe.out.name] = change.get(recipe.out.name, 0) + recipe.out.count
    text = book.words.say(book.words.crafted, recipe.out)
    return Outcome(_changed(inventory, change), text, crafted=recipe.out)


def _changed(inventory: Inventory, change: Mapping[str, int]) -> Inventory:
    after = dict(inventory)
    for name, count in change.items():
        after[name] = after.get(name, 0) + count
    return MappingProxyType({name: count for name, count in after.items() if count})


def _amount(text: str) -> Amount | None:
    match = _AMOUNT.fullmatch(text.strip())
    return None if match is None else Amount(int(match["count"]), match["name"])
