"""The oracle: its plans work, whatever the recipes, and depth is what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.benchmarks.craft.frozen import load_world
from sentinel.benchmarks.craft.oracle import NoPlan, depth, needed, plan
from sentinel.benchmarks.craft.rules import Amount, Recipe, RecipeBook, apply


def carried_out(book: RecipeBook, commands: list[str]) -> dict[str, int]:
    inventory: dict[str, int] = {}
    for command in commands:
        outcome = apply(book, inventory, command)
        assert not outcome.error, (command, outcome.text, inventory)
        inventory = dict(outcome.inventory)
    return inventory


@st.composite
def books(draw: st.DrawFn) -> RecipeBook:
    """Layers of items, each made of items of the layers below it; some share their parts."""
    below, recipes = ["a0", "a1", "a2"], []
    for layer in "bcd":
        here = [f"{layer}{i}" for i in range(draw(st.integers(1, 3)))]
        for name in here:
            parts = draw(st.lists(st.sampled_from(below), min_size=1, max_size=3, unique=True))
            counts = [draw(st.integers(1, 3)) for _ in parts]
            amounts = tuple(Amount(n, part) for n, part in zip(counts, parts, strict=True))
            recipes.append(Recipe(Amount(draw(st.integers(1, 3)), name), amounts))
        below += here
    return RecipeBook(tuple(recipes))


@given(books(), st.integers(1, 3), st.booleans())
def test_a_plan_makes_its_goal_without_an_error(book: RecipeBook, n: int, backward: bool) -> None:
    for item in book.makes:
        held = carried_out(book, plan(book, item, n, backward=backward))
        assert held[item] >= n


@given(books())
def test_a_goal_is_one_deeper_than_its_deepest_part(book: RecipeBook) -> None:
    for item, (recipe,) in book.makes.items():
        assert depth(book, item) == 1 + max(depth(book, p.name) for p in recipe.parts)
    assert depth(book, "a0") == 0


def test_what_is_held_is_used() -> None:
    book = load_world().book
    assert plan(book, "oak plank", have={"oak log": 1}) == ["craft 2 oak plank using 1 oak log"]
    assert plan(book, "oak plank", 2, have={"oak plank": 2})  # two more than are held


def test_preferred_carriers_stand_for_a_tag() -> None:
    book = load_world().book
    item = next(r.out.name for r in book.recipes if any(p.name == "nail" for p in r.parts))
    for metal in ("copper", "zinc"):
        commands = plan(book, item, prefer={f"{metal} nail"})
        assert any(c.startswith(f"craft 3 {metal} nail using") for c in commands)
        assert f"{metal} nail" in {r.out.name for r in needed(book, item, {f"{metal} nail"})}


def test_a_goal_that_nothing_makes_is_refused() -> None:
    circle = RecipeBook(
        (
            Recipe(Amount(1, "hen"), (Amount(1, "egg"),)),
            Recipe(Amount(1, "egg"), (Amount(1, "hen"),)),
        )
    )
    with pytest.raises(NoPlan, match="needed to make"):
        plan(circle, "hen")
    with pytest.raises(NoPlan, match="nothing is called moon"):
        plan(circle, "moon")
