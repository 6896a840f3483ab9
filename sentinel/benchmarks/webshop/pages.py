"""The shop's pages as text, their parts joined by `[SEP]`, and what can be clicked on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentinel.benchmarks.webshop.catalogue import Product

PER_PAGE = 10
BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
DESCRIPTION, FEATURES, REVIEWS = "Description", "Features", "Reviews"
DETAILS = (DESCRIPTION, FEATURES, REVIEWS)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its texts, what can be clicked (lower case → what it is), whether one may search."""

    kind: str
    texts: tuple[str, ...]
    clickable: Mapping[str, str]
    searchable: bool = False

    def text(self) -> str:
        """The page as the agent reads it."""
        # A text of the catalogue cannot pass for a border between two parts.
        return " [SEP] ".join(" ".join(t.split()).replace("[SEP]", "(SEP)") for t in self.texts)


def start(instruction: str) -> Page:
    """The search page."""
    texts = ("WebShop", "Instruction:", instruction, "Search")
    return Page("search", texts, {}, searchable=True)


def results(instruction: str, found: Sequence[Product], number: int, total: int) -> Page:
    """A page of results; `number` counts from 1."""
    buttons = [BACK]
    moves = [PREVIOUS] if number > 1 else []
    moves += [NEXT] if number * PER_PAGE < total else []
    texts = ["Instruction:", instruction, BACK, f"Page {number} (Total results: {total})", *moves]
    for product in found:
        texts += [product.asin, product.title, product.price_tag]
    clickable = {b.lower(): b for b in (*buttons, *moves)}
    clickable |= {product.asin.lower(): f"product:{product.asin}" for product in found}
    return Page("results", tuple(texts), clickable)


def item(instruction: str, product: Product) -> Page:
    """A product's page: options by name, then title, price and buttons."""
    texts = ["Instruction:", instruction, BACK, PREVIOUS]
    clickable: dict[str, str] = {}
    for name, values in product.options.items():
        texts += [name, *values]
        # A value under two names belongs to the last one, as a browser's form keeps it.
        clickable |= dict.fromkeys(values, f"option:{name}")
    texts += [product.title, f"Price: {product.price_tag}", "Rating: N.A.", *DETAILS, BUY]
    clickable |= {b.lower(): b for b in (BACK, PREVIOUS, *DETAILS, BUY)}
    return Page("item", tuple(texts), clickable)


def detail(instruction: str, product: Product, which: str) -> Page:
    """One of a product's sub-pages."""
    held = {
        DESCRIPTION: (product.description,),
        FEATURES: product.bullets,
        REVIEWS: (),
    }[which]
    texts = ("Instruction:", instruction, BACK, PREVIOUS, *held)
    return Page("detail", texts, {b.lower(): b for b in (BACK, PREVIOUS)})


def done(total: float) -> Page:
    """The page after a purchase."""
    texts = ("Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", f"{total:.4f}")
    return Page("done", texts, {})
