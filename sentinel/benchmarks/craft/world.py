"""The embedded crafting world: items and recipes of our own, made by a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from sentinel.benchmarks.craft.oracle import depth, plan
from sentinel.benchmarks.craft.rules import Amount, Recipe, RecipeBook

WOODS = ("oak", "pine", "ash", "elm")
METALS = ("copper", "iron", "tin", "zinc")
FIBRES = ("hemp", "wool", "flax", "silk")
EARTHS = ("clay", "sand", "chalk", "slate")
FUEL = "coal"
EXTRAS = ("resin", "wax", "salt", "feather", "leather", "dye")
SIMPLE = ("chest", "stool", "wheel", "ladder", "bucket", "lamp", "bell", "mat", "pot", "brush")
GREAT = ("cart", "door", "loom", "oven", "tent", "drum", "mill", "sled")
TAGS: Mapping[str, tuple[str, ...]] = {
    "plank": tuple(f"{w} plank" for w in WOODS),
    "nail": tuple(f"{m} nail" for m in METALS),
    "rope": tuple(f"{f} rope" for f in FIBRES),
}
"""Parts that any one of several items may stand for."""
LONGEST = 11
"""Commands that the plan of one goal item may need."""


PartOf = Callable[[np.random.Generator, str], str]
"""A part to go with a main material, drawn."""


def make_book(seed: int) -> RecipeBook:
    """All recipes: materials (depth 1 and 2) by rule, goods (depth 2 to 4) drawn by seed.

    Every good is made of a main material, which names it, and of one or two other parts; goods of
    depth 3 and 4 use simpler goods and materials that other goods use too.
    """
    rng = np.random.default_rng(seed)
    recipes = _materials()
    goods: list[Recipe] = []
    for noun in SIMPLE:
        for family in _families(rng, 4):
            goods.append(_accepted(rng, recipes, noun, family, _simple_part, 2))
    simple = [r.out.name for r in goods]
    recipes += goods
    for noun in GREAT:
        for family in _families(rng, 4):
            part = partial(_great_part, simple=simple)
            recipes.append(_accepted(rng, recipes, noun, family, part, 3))
    return RecipeBook(tuple(recipes), TAGS)


def _accepted(
    rng: np.random.Generator,
    recipes: Sequence[Recipe],
    noun: str,
    family: str,
    part: PartOf,
    shallowest: int,
) -> Recipe:
    """A recipe of the wanted depth whose plan is not too long: drawn until one is found."""
    while True:
        recipe = _good(rng, noun, family, part)
        book = RecipeBook((*recipes, recipe), TAGS)
        deep = depth(book, recipe.out.name)
        if shallowest <= deep <= 4 and len(plan(book, recipe.out.name)) <= LONGEST:
            return recipe


def _recipe(out: str, count: int, *parts: tuple[int, str]) -> Recipe:
    return Recipe(Amount(count, out), tuple(Amount(n, name) for n, name in parts))


def _materials() -> list[Recipe]:
    found = []
    for wood in WOODS:
        found.append(_recipe(f"{wood} plank", 2, (1, f"{wood} log")))
        found.append(_recipe(f"{wood} rod", 2, (1, f"{wood} plank")))
    for metal in METALS:
        found.append(_recipe(f"{metal} bar", 1, (2, f"{metal} ore"), (1, FUEL)))
        found.append(_recipe(f"{metal} nail", 3, (1, f"{metal} bar")))
    for fibre in FIBRES:
        found.append(_recipe(f"{fibre} thread", 2, (1, f"raw {fibre}")))
        found.append(_recipe(f"{fibre} rope", 1, (2, f"{fibre} thread")))
    for earth in EARTHS:
        found.append(_recipe(f"{earth} brick", 2, (3, f"{earth} lump"), (1, FUEL)))
    return found


def _families(rng: np.random.Generator, n: int) -> list[str]:
    every = [*WOODS, *METALS, *FIBRES, *EARTHS]
    return [every[i] for i in rng.choice(len(every), n, replace=False)]


def _main(rng: np.random.Generator, material: str) -> str:
    if material in WOODS:
        return f"{material} {rng.choice(['plank', 'rod'])}"
    if material in METALS:
        return f"{material} bar"
    if material in FIBRES:
        return f"{material} {rng.choice(['thread', 'rope'])}"
    return f"{material} brick"


def _simple_part(rng: np.random.Generator, material: str) -> str:
    kind = rng.random()
    if kind < 0.4:
        return str(rng.choice(EXTRAS))
    if kind < 0.65:
        return str(rng.choice(list(TAGS)))
    others = [m for m in (*WOODS, *METALS, *FIBRES, *EARTHS) if m != material]
    return _main(rng, str(rng.choice(others)))


def _great_part(rng: np.random.Generator, material: str, simple: Sequence[str]) -> str:
    return str(rng.choice(simple)) if rng.random() < 0.6 else _simple_part(rng, material)


def _good(rng: np.random.Generator, noun: str, material: str, other: PartOf) -> Recipe:
    main = _main(rng, material)
    names = [main]
    for _ in range(int(rng.integers(1, 3))):
        name = other(rng, material)
        if name not in names and name.rpartition(" ")[2] not in {main.rpartition(" ")[2], *names}:
            names.append(name)
    if len(names) == 1:
        names.append(str(rng.choice(EXTRAS)))
    parts = [(int(rng.integers(1, 3)) if n == main or n in EXTRAS else 1, n) for n in names]
    order = rng.permutation(len(parts))
    return _recipe(f"{material} {noun}", 1, *(parts[i] for i in order))
