"""The score of a purchase: attributes, options and price, times the type of product.

As in the original but for the type: it tags nouns in titles with a spaCy model; here every word of
the title counts that is no function word. A purchase of the goal's own product is not affected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from sentinel.benchmarks.webshop.catalogue import Product
from sentinel.benchmarks.webshop.goals import Goal

MATCH = 85
"""Token-set ratio (0…100) above which two texts agree."""
COLOURS = (files(__package__) / "colours.txt").read_text().split()
"""Colours that stand for every shade named after them, in the order in which they are tried."""
_FUNCTION_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "is", "it", "its", "of"}
    | {"on", "or", "that", "the", "this", "to", "with", "you", "your"}
)


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's score in [0, 1] and its parts, each a share (None: nothing was asked)."""

    total: float
    attributes: float
    options: float | None
    price: bool
    type: float

    @property
    def success(self) -> bool:
        """Everything that was asked for: the total is 1."""
        return self.total == 1.0


def score(
    product: Product, goal: Goal, wanted: Product, paid: float, chosen: Mapping[str, str]
) -> Score:
    """Score buying `product` with `chosen` options for `paid` dollars when `wanted` was meant."""
    attributes = sum(_has_attribute(product, a) for a in goal.attributes)
    bought = [_colour(o) for o in chosen.values()]
    options = sum(any(ratio(b, _colour(o)) > MATCH for b in bought) for o in goal.options.values())
    affordable = paid <= goal.cap
    kind = _type(product, wanted)
    asked = len(goal.attributes) + len(goal.options) + 1
    return Score(
        total=kind * (attributes + options + affordable) / asked,
        attributes=attributes / len(goal.attributes),
        options=options / len(goal.options) if goal.options else None,
        price=affordable,
        type=kind,
    )


def ratio(a: str, b: str) -> int:
    """Token-set ratio of two texts, 0…100, as the original's fuzzy matcher rounds it."""
    from rapidfuzz import fuzz, utils

    return round(fuzz.token_set_ratio(a, b, processor=utils.default_process))


def _has_attribute(product: Product, attribute: str) -> bool:
    if any(ratio(own, attribute) > MATCH for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(attribute in text.lower() for text in texts)


def _colour(value: str) -> str:
    return next((c for c in COLOURS if c in value), value)


def _type(product: Product, wanted: Product) -> float:
    """1, or less where neither query, categories nor title say that it is the same kind."""
    same_query = product.query == wanted.query
    same_category = len(_categories(product) & _categories(wanted)) >= 2
    meant = _words(wanted.title)
    share = len(_words(product.title) & meant) / len(meant) if meant else 0.2
    if share == 0.0:
        return 0.0
    if share < 0.1:
        return 0.1
    return 1.0 if same_query or same_category or share > 0.2 else 0.5


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def _words(title: str) -> set[str]:
    return set(re.findall(r"[a-z]+", title.lower())) - _FUNCTION_WORDS
