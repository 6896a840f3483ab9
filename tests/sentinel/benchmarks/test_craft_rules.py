"""Crafting rules: what a command does to an inventory, and that a book never changes."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.benchmarks.craft.rules import (
    Amount,
    Command,
    Recipe,
    RecipeBook,
    apply,
    describe,
    matching,
    parse,
)


def recipe(count: int, out: str, *parts: tuple[int, str]) -> Recipe:
    return Recipe(Amount(count, out), tuple(Amount(n, name) for n, name in parts))


BOOK = RecipeBook(
    (
        recipe(2, "oak plank", (1, "oak log")),
        recipe(2, "pine plank", (1, "pine log")),
        recipe(1, "box", (2, "plank"), (1, "oak plank")),
        recipe(1, "box", (1, "salt"), (3, "plank")),
    ),
    {"plank": ("oak plank", "pine plank")},
)
ITEMS = sorted(BOOK.items)
commands = st.one_of(
    st.builds("get {} {}".format, st.integers(0, 12), st.sampled_from([*ITEMS, "plank", "moon"])),
    st.sampled_from([r.command() for r in BOOK.recipes]),
    st.builds(
        "craft 1 box using {} oak plank, {} pine plank".format, st.integers(0, 3), st.integers(0, 3)
    ),
    st.just("inventory"),
    st.text(max_size=30),
)


@given(st.lists(commands, max_size=25))
def test_inventories_stay_positive_and_errors_change_nothing(texts: list[str]) -> None:
    inventory: MappingProxyType[str, int] | dict[str, int] = {}
    before = hash(BOOK.recipes), dict(BOOK.tags)
    for text in texts:
        kept = dict(inventory)
        outcome = apply(BOOK, inventory, text)
        assert dict(inventory) == kept  # what went in is as it was
        assert all(count > 0 for count in outcome.inventory.values())
        assert outcome.inventory.keys() <= BOOK.items
        assert outcome.error == outcome.text.startswith("error: ")
        if outcome.error:
            assert dict(outcome.inventory) == kept
            assert outcome.crafted is None
        inventory = outcome.inventory  # type: ignore[assignment]
    assert (hash(BOOK.recipes), dict(BOOK.tags)) == before


@given(st.integers(1, 999), st.sampled_from(ITEMS))
def test_a_command_is_read_back(count: int, name: str) -> None:
    assert parse(f"  GET {count}   {name} ") == Command("get", Amount(count, name))
    made = recipe(count, name, (2, "a b"), (1, "c"))
    assert parse(made.command()) == Command("craft", made.out, made.parts)


@pytest.mark.parametrize(
    "text",
    ["", "get", "get oak log", "get two oak log", "get 1000 oak log", "craft 1 box", "inventory 2",
     "craft 1 box using", "craft 1 box using oak plank", "get 1 oak log\nget 1 oak log x", "look"],
)  # fmt: skip
def test_anything_else_is_no_command(text: str) -> None:
    held = {"oak log": 1}
    outcome = apply(BOOK, held, text)
    if parse(text) is None:
        assert outcome.text == "error: invalid action"
    assert dict(outcome.inventory) == held
    assert outcome.error


def test_get_gives_only_what_no_recipe_makes() -> None:
    assert apply(BOOK, {}, "get 3 oak log").inventory == {"oak log": 3}
    for name in ("oak plank", "plank", "box", "moon"):
        assert apply(BOOK, {}, f"get 1 {name}").text == f"error: cannot get {name}"
    assert apply(BOOK, {}, "get 0 oak log").error


def test_craft_needs_exactly_the_ingredients_of_one_recipe() -> None:
    held = {"oak plank": 3, "pine plank": 2, "salt": 1}
    made = apply(BOOK, held, "craft 1 box using 2 pine plank, 1 oak plank")
    assert made.crafted == Amount(1, "box")
    assert made.inventory == {"oak plank": 2, "salt": 1, "box": 1}
    # one carrier may fill the tag and the item beside it
    assert not apply(BOOK, held, "craft 1 box using 2 oak plank, 1 oak plank").error
    assert not apply(BOOK, held, "craft 1 box using 3 oak plank, 1 salt").error
    for wrong in (
        "craft 1 box using 1 pine plank, 2 oak plank, 1 salt",
        "craft 1 box using 3 oak plank",
        "craft 1 box using 2 plank, 1 oak plank",
        "craft 1 oak plank using 1 pine plank",
    ):
        assert apply(BOOK, held, wrong).text.startswith("error: ")
    assert apply(BOOK, {"pine plank": 2}, "craft 1 box using 2 pine plank, 1 oak plank").text == (
        "error: not enough items for box"
    )


def test_the_number_before_the_crafted_item_counts_only_where_it_is_checked() -> None:
    held = {"oak log": 1}
    assert apply(BOOK, held, "craft 7 oak plank using 1 oak log").inventory == {"oak plank": 2}
    assert apply(BOOK, held, "craft oak plank using 1 oak log").inventory == {"oak plank": 2}
    exact = RecipeBook(BOOK.recipes, BOOK.tags, check_output=True)
    assert apply(exact, held, "craft 7 oak plank using 1 oak log").error
    assert not apply(exact, held, "craft 2 oak plank using 1 oak log").error


def test_an_inventory_in_words() -> None:
    assert describe({}) == "Inventory: You are not carrying anything."
    text = apply(BOOK, {"salt": 2, "box": 1}, "inventory").text
    assert text == "Inventory: [box] (1) [salt] (2)"


def test_a_book_cannot_be_changed_or_be_wrong() -> None:
    with pytest.raises(TypeError):
        BOOK.makes["box"] = ()  # type: ignore[index]
    with pytest.raises(TypeError):
        BOOK.tags["plank"] = ()  # type: ignore[index]
    for bad in (recipe(1, "a"), recipe(0, "a", (1, "b")), recipe(1, "a", (1, "b"), (2, "b"))):
        with pytest.raises(ValueError, match="not a recipe"):
            RecipeBook((bad,))
    for tags in ({"box": ("salt",)}, {"plank": ()}):
        with pytest.raises(ValueError, match="tags"):
            RecipeBook(BOOK.recipes, tags)
    assert matching(BOOK, Amount(1, "box"), []) is None
