"""`WebshopBenchmark`: shopping goals over the user's catalogue."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from sentinel.agent.react import Dialect
from sentinel.benchmarks.base import DataError, Environment, Task, file_to_freeze
from sentinel.benchmarks.webshop import frozen
from sentinel.benchmarks.webshop.catalogue import Catalogue, load
from sentinel.benchmarks.webshop.environment import Shop, WebshopEnvironment
from sentinel.benchmarks.webshop.goals import Goal, make_goals
from sentinel.benchmarks.webshop.search import Search
from sentinel.benchmarks.whole_file import Stamp, stamp
from sentinel.errors import UserError

RULES_VERSION = 1
"""Raised whenever a page, the search or the score changes."""

PROMPT = """\
You shop for somebody in a web shop that you see as text; parts of a page are separated by [SEP]. \
Each of your replies is one short thought and exactly one action, each on its own line:

THOUGHT: <why this action>
ACTION: <one command>

COMMANDS
- search[<words>]: only on the search page.
- click[<text>]: a button, a product number, or a value of an option, exactly as the page shows it.

RULES
- Choose every option that the instruction asks for before click[Buy Now]; it ends the task.
- A purchase is right only if product, every option and the price are what the instruction says.
- Never write an OBSERVATION yourself; it comes in the next message.
- You have {max_turns} replies in all."""


@lru_cache(maxsize=2)
def _shop(products: str, attributes: str, seed: int, files_as_they_are: Stamp) -> Shop:
    del files_as_they_are  # a key of the cache
    catalogue = load(products, attributes)
    return Shop(catalogue, Search(catalogue), seed)


class WebshopBenchmark:
    """Goals of a WebShop catalogue; the group of a task is the product that is meant.

    `products_file` and `attributes_file` are the user's; `seed` draws prices and caps;
    `goals_per_product` keeps so many option combinations of each product (None: all, or whatever
    was frozen); `silent` answers an invalid action with the same page and no word, as the original
    does. `tasks_file` holds the frozen goals (`sentinel freeze`); None makes them anew, which gives
    the same ones. One catalogue and index serve all episodes of a process.
    """

    dialect = Dialect(act="ACTION", final=None, abstain=None)
    max_turns = 20

    def __init__(
        self,
        name: str = "webshop",
        *,
        products_file: str,
        attributes_file: str,
        seed: int = 0,
        goals_per_product: int | None = None,
        silent: bool = False,
        tasks_file: str | None = None,
    ) -> None:
        if goals_per_product is not None and goals_per_product < 1:
            raise UserError(
                f"{name}: goals_per_product is {goals_per_product}", "set it to at least 1"
            )
        self.name, self.seed, self.silent = name, seed, silent
        self.products_file, self.attributes_file = products_file, attributes_file
        self.goals_per_product = goals_per_product
        self.tasks_file = None if tasks_file is None else Path(tasks_file).absolute()
        self._goals: dict[str, Goal] | None = None

    @cached_property
    def shop(self) -> Shop:
        """Catalogue and index, as their files were when first asked for.

        Raises DataError for files that cannot be used.
        """
        files = self.products_file, self.attributes_file
        return _shop(*files, self.seed, stamp(*map(Path, files)))

    @property
    def catalogue(self) -> Catalogue:
        """The products."""
        return self.shop.catalogue

    def goals(self) -> Mapping[str, Goal]:
        """Goal id → goal, sorted by id. Raises DataError where they are not what was frozen."""
        if self._goals is None:
            if self.tasks_file is None:
                self._goals = self._made(self.goals_per_product)
            else:
                digest = self.catalogue.digest
                every = self._made(None)
                found = frozen.read(self.tasks_file, every, catalogue=digest, seed=self.seed)
                self._refuse_others(found)
                self._goals = found
        return self._goals

    def _refuse_others(self, found: Mapping[str, Goal]) -> None:
        """Frozen goals are those that `goals_per_product` asks for, where it asks."""
        if self.goals_per_product is None:
            return
        wanted = self._made(self.goals_per_product)
        if found.keys() != wanted.keys():
            raise DataError(
                f"webshop: {self.tasks_file} holds {len(found)} goals, goals_per_product: "
                f"{self.goals_per_product} asks for {len(wanted)}",
                "leave goals_per_product out, or freeze the goals again: sentinel freeze CONFIG",
            )

    def _made(self, per_product: int | None) -> dict[str, Goal]:
        made = make_goals(self.catalogue, self.seed, per_product)
        if not made:
            raise DataError(
                f"{self.attributes_file} holds no instruction, so there is no goal",
                "name items_ins_v2*.json, which has `instruction` fields",
            )
        return {g.goal_id: g for g in made}

    def freeze(self, path: Path | None = None) -> Path:
        """Write the goal file, to `tasks_file` unless another is named; returns where.

        Raises UserError where neither is given.
        """
        path = file_to_freeze(self.name, path, self.tasks_file)
        goals = self._made(self.goals_per_product)
        frozen.write(goals, catalogue=self.catalogue.digest, seed=self.seed, path=path)
        return path

    def tasks(self) -> Sequence[Task]:
        """Every goal, in the order of ids."""
        return [
            Task(
                self.name,
                goal.goal_id,
                goal.asin,
                goal.text,
                meta={
                    "options": dict(goal.options),
                    "attributes": list(goal.attributes),
                    "cap": goal.cap,
                    "depth": len(goal.options),
                },
            )
            for goal in self.goals().values()
        ]

    def oracle(self, task: Task) -> list[str]:
        """Commands that buy what is meant: search its title, open it, choose, buy.

        Raises LookupError when a search for the title does not find the product.
        """
        goal = self.goals()[task.task_id]
        product = self.catalogue.by_asin[goal.asin]
        found = self.shop.search(product.title.lower())
        if product.asin not in found:
            raise LookupError(f"a search for its title does not find {product.asin}")
        pages_on = found.index(product.asin) // 10
        return [
            f"search[{product.title}]",
            *["click[Next >]"] * pages_on,
            f"click[{product.asin}]",
            *(f"click[{value}]" for value in goal.options.values()),
            "click[Buy Now]",
        ]

    def pools(self) -> Mapping[str, str] | None:
        """None: pools are drawn by group."""
        return None

    def fingerprint(self) -> str:
        """Hash of both files, seed, goals, rules, cap and prompt."""
        state = hashlib.sha256(self.catalogue.digest.encode())
        settings = (RULES_VERSION, self.seed, self.silent, self.max_turns, self.system_prompt())
        state.update("\n".join(map(str, settings)).encode())
        for goal in self.goals().values():
            state.update(f"\n{goal.goal_id}\t{goal.text}\t{goal.cap}".encode())
        return state.hexdigest()

    def system_prompt(self) -> str:
        """Commands, rules and the form of a reply."""
        return PROMPT.format(max_turns=self.max_turns)

    def make_env(self, task: Task) -> Environment:
        """A fresh visit; catalogue and index are shared and never changed."""
        return WebshopEnvironment(self.shop, self.goals()[task.task_id], silent=self.silent)

    def prepare(self, cache: Path) -> None:
        """Nothing is written; files are read and the index is made."""
        del cache
        _ = self.goals()

    def close(self) -> None:
        """Nothing runs beside this process."""
