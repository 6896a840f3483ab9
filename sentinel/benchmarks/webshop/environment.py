"""One visit to the shop: an action is `search[…]` or `click[…]`, an observation is a page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sentinel.agent.react import Action
from sentinel.benchmarks.base import Status, Step
from sentinel.benchmarks.webshop import pages
from sentinel.benchmarks.webshop.catalogue import Catalogue, Product
from sentinel.benchmarks.webshop.goals import Goal, price
from sentinel.benchmarks.webshop.pages import Page
from sentinel.benchmarks.webshop.score import Score, score
from sentinel.benchmarks.webshop.search import Search

_COMMAND = re.compile(r"\s*(search|click)\s*\[(.*)\]\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Shop:
    """What all episodes of a process share, read-only."""

    catalogue: Catalogue
    search: Search
    seed: int


class WebshopEnvironment:
    """One goal in the shop.

    The verdict comes with `click[Buy Now]`, which ends the episode: success is a score of 1. What
    cannot be done leaves the page as it is; by default the agent is told so (`error: …`), with
    `silent` it only sees the page again, as in the original.
    """

    def __init__(self, shop: Shop, goal: Goal, *, silent: bool = False) -> None:
        self._shop, self._goal, self._silent = shop, goal, silent
        self.score: Score | None = None
        self._begin()

    def _begin(self) -> None:
        self._page: Page = pages.start(self._goal.text)
        self._found: list[str] = []
        self._number = 1
        self._product: Product | None = None
        self._options: dict[str, str] = {}

    async def reset(self) -> str:
        """The search page with the instruction."""
        self.score = None
        self._begin()
        return self._page.text()

    async def step(self, action: Action) -> Step:
        """Search, click, or say what cannot be done."""
        if action.kind != "act":
            raise ValueError(f"the environment was given a {action.kind} turn")
        problem = self._act(action.text)
        text, status = self._page.text(), "ok"
        if problem is not None:
            status = "error"
            text = text if self._silent else f"error: {problem}. {text}"
        bought = self.score is not None
        return Step(
            observation=text,
            status=_status(status),
            done=bought,
            success=self.score.success if self.score is not None else False,
        )

    def moves(self) -> list[str]:
        """Commands that this page takes; a search is for the words of the instruction."""
        found = [f"click[{text}]" for text in self._page.clickable]
        return [f"search[{self._goal.text}]", *found] if self._page.searchable else found

    def verdict(self) -> bool:
        """Whether the goal is reached, also of an episode that bought nothing."""
        return self.score is not None and self.score.success

    async def close(self) -> None:
        """Nothing is held outside this object."""

    def _act(self, text: str) -> str | None:
        """Carry out one command; what is wrong with it, else None."""
        match = _COMMAND.fullmatch(text)
        if match is None:
            return "an action is search[words] or click[something on the page]"
        verb, argument = match[1].lower(), match[2].strip()
        if verb == "search":
            return self._search(argument)
        what = self._page.clickable.get(argument.lower())
        if what is None:
            return f"nothing on this page reads {argument[:80]!r}"
        self._click(what, argument.lower())
        return None

    def _search(self, keywords: str) -> str | None:
        if not self._page.searchable:
            return "there is no search bar on this page"
        if not keywords:
            return "a search needs words"
        self._found, self._number = self._shop.search(keywords.lower()), 1
        self._show_results()
        return None

    def _click(self, what: str, argument: str) -> None:
        if what == pages.BACK:
            self._begin()
        elif what.startswith("product:"):
            asin = what.removeprefix("product:")  # as the catalogue spells it
            self._product, self._options = self._shop.catalogue.by_asin[asin], {}
            self._show_item()
        elif what.startswith("option:"):
            self._options[what.removeprefix("option:")] = argument
            self._show_item()
        elif what in pages.DETAILS:
            self._page = pages.detail(self._goal.text, self._bought(), what)
        elif what == pages.BUY:
            self._buy()
        elif what == pages.PREVIOUS and self._page.kind == "detail":
            self._show_item()
        elif what == pages.PREVIOUS and self._page.kind == "item":
            self._show_results()
        else:
            self._number += 1 if what == pages.NEXT else -1
            self._show_results()

    def _show_results(self) -> None:
        self._product, self._options = None, {}
        first = (self._number - 1) * pages.PER_PAGE
        shown = [
            self._shop.catalogue.by_asin[a] for a in self._found[first : first + pages.PER_PAGE]
        ]
        self._page = pages.results(self._goal.text, shown, self._number, len(self._found))

    def _show_item(self) -> None:
        self._page = pages.item(self._goal.text, self._bought())

    def _buy(self) -> None:
        product = self._bought()
        wanted = self._shop.catalogue.by_asin[self._goal.asin]
        paid = price(product, self._shop.seed)
        self.score = score(product, self._goal, wanted, paid, self._options)
        self._page = pages.done(self.score.total)

    def _bought(self) -> Product:
        assert self._product is not None  # the page in view is a product's
        return self._product


def _status(word: Any) -> Status:
    return "error" if word == "error" else "ok"
