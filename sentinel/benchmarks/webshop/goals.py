"""Goals, frozen: instruction, wanted options and price cap are functions of a seed and the ASIN.

The original draws prices and caps from the process's random state at load time, so that two
processes give different instructions to the same goal. Here nothing depends on the order of the
files, the process, or how many goals are made.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from sentinel.benchmarks.webshop.catalogue import Catalogue, Product

CAPS = tuple(10.0 * i for i in range(1, 100))
"""Price caps in dollars."""
NO_CAP = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal. `options` maps an option's name to the wanted value; `cap` is in dollars."""

    goal_id: str
    asin: str
    text: str
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    cap: float


def price(product: Product, seed: int) -> float:
    """The product's price; one of a range is drawn by seed and ASIN."""
    if len(product.prices) == 1:
        return product.prices[0]
    low, high = product.prices
    return low + (high - low) * draw(seed, "price", product.asin)


def make_goals(
    catalogue: Catalogue, seed: int = 0, per_product: int | None = None
) -> tuple[Goal, ...]:
    """One goal per product with an instruction and combination of its options.

    `per_product` keeps so many combinations of each product, chosen by hash; None keeps all. The
    goals are sorted by id.
    """
    out: list[Goal] = []
    for product in catalogue.products:
        if product.instruction is None or not product.instruction_attributes:
            continue
        out += _of_product(product, seed, per_product)
    return tuple(sorted(out, key=lambda g: g.goal_id))


def _of_product(product: Product, seed: int, per_product: int | None) -> list[Goal]:
    cap, price_text = _cap(product, seed)
    names = sorted(product.options)
    goals = []
    for values in itertools.product(*(product.options[n] for n in names)):
        options = dict(zip(names, values, strict=True))
        wanted = ", and ".join(f"{k}: {v}" for k, v in options.items())
        text = f"{product.instruction}{' with ' + wanted if wanted else ''}{price_text}"
        key = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()[:10]
        goals.append(
            Goal(
                f"{product.asin}-{key}",
                product.asin,
                text,
                product.instruction_attributes,
                options,
                cap,
            )
        )
    # The same value twice among an option's values is one goal.
    goals = list({g.goal_id: g for g in goals}.values())
    if per_product is not None:
        goals = sorted(goals, key=lambda g: draw(seed, "goal", g.goal_id))[:per_product]
    return goals


def _cap(product: Product, seed: int) -> tuple[float, str]:
    """The larger of two of the next four caps above the price, as the original chooses it."""
    above = [c for c in CAPS if c > price(product, seed)][:4]
    if len(above) < 2:
        return NO_CAP, ""
    pairs = list(itertools.combinations(above, 2))
    cap = pairs[int(draw(seed, "cap", product.asin) * len(pairs))][1]
    return cap, f", and price lower than {cap:.2f} dollars"


def draw(seed: int, what: str, name: str) -> float:
    """A number in [0, 1) that depends on nothing else."""
    digest = hashlib.sha256(f"{seed}/{what}/{name}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
