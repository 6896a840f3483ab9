"""The catalogue: products, their options and attributes, read once and never changed.

Two forms of product file are read: the original list of items, and prepared lines of
`{"id", "contents", "product"}`. The attribute file maps an ASIN to `attributes` and, for products
that goals are made of, `instruction` and `instruction_attributes`.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from sentinel.benchmarks.base import DataError

NO_PRICE = 100.0
"""Dollars of a product without a price, as in the original."""
MAX_ASIN = 10


@dataclass(frozen=True, slots=True)
class Product:
    """One product. `prices` is one price or a (low, high) pair, in dollars."""

    asin: str
    title: str
    category: str
    product_category: str
    query: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    instruction: str | None
    instruction_attributes: tuple[str, ...]
    contents: str

    @property
    def price_tag(self) -> str:
        """`$9.99` or `$9.99 to $19.99`."""
        return " to ".join(f"${p}" for p in self.prices)


@dataclass(frozen=True)
class Catalogue:
    """All products in file order, by ASIN, and the hash of both files."""

    products: tuple[Product, ...]
    by_asin: Mapping[str, Product]
    digest: str


def load(products: Path | str, attributes: Path | str) -> Catalogue:
    """Read a catalogue.

    Raises DataError for a missing or damaged file, a product without the needed fields, and for an
    attribute file that knows none of the products.
    """
    state = hashlib.sha256()
    known = _json(Path(attributes), state)
    if not isinstance(known, dict):
        raise DataError(f"{attributes} maps no products", "name items_ins_v2*.json")
    found: dict[str, Product] = {}
    for number, (item, contents) in enumerate(_items(Path(products), state)):
        asin = str(item.get("asin", "nan"))
        if asin != "nan" and len(asin) <= MAX_ASIN and asin not in found:
            found[asin] = _product(Path(products), number, item, contents, known.get(asin))
    if not any(asin in known for asin in found):
        raise DataError(
            f"{attributes} holds no attributes of the {len(found)} products in {products}",
            "name the attribute file of this catalogue (items_ins_v2*.json)",
        )
    return Catalogue(tuple(found.values()), found, state.hexdigest())


def _items(path: Path, state: Any) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    raw = _json(path, state, lines=".jsonl" in path.suffixes)
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{path} holds no products", "name items_shuffle*.json or products*.jsonl")
    for item in raw:
        if isinstance(item, dict) and isinstance(item.get("product"), dict):
            yield {**item["product"], "asin": item.get("id", "nan")}, item.get("contents")
        elif isinstance(item, dict):
            yield item, None
        else:
            raise DataError(f"{path} holds no products", "name items_shuffle*.json")


def _json(path: Path, state: Any, lines: bool = False) -> Any:
    try:
        data = path.read_bytes()
        data = lzma.decompress(data) if path.suffix == ".xz" else data
        state.update(data)
        if lines:
            return [json.loads(line) for line in data.split(b"\n") if line.strip()]
        return json.loads(data)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}",
            "set products_file and attributes_file of the benchmark to WebShop's files",
        ) from error
    except (ValueError, lzma.LZMAError) as error:
        raise DataError(f"{path} is damaged: {error}", "get the file again") from error


def _product(
    path: Path, number: int, item: Mapping[str, Any], contents: str | None, known: Any
) -> Product:
    try:
        title, description = str(item["name"]), str(item["full_description"] or "")
        bullets = item["small_description"]
        query = str(item["query"]).lower().strip()
        category, product_category = str(item["category"]), str(item["product_category"])
        prices, options = _prices(item.get("pricing")), _options(item.get("customization_options"))
        known = known if isinstance(known, dict) else {}
        attributes = _texts(known, "attributes") or ("DUMMY_ATTR",)
        wanted = _texts(known, "instruction_attributes")
    except KeyError as error:
        raise DataError(
            f"{path}: product {number} has no {error.args[0]}", "name a WebShop catalogue"
        ) from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: product {number}: {error}", "name a WebShop catalogue") from error
    texts = tuple(map(str, bullets)) if isinstance(bullets, list) else (str(bullets or ""),)
    return Product(
        asin=str(item["asin"]),
        title=title,
        category=category,
        product_category=product_category,
        query=query,
        description=description,
        bullets=texts,
        prices=prices,
        options=options,
        attributes=attributes,
        instruction=known.get("instruction"),
        instruction_attributes=wanted,
        contents=contents or " ".join([title, description, *texts]).lower(),
    )


def _prices(pricing: Any) -> tuple[float, ...]:
    """`"$1,299.00$1,499.00"` or a list of numbers; two at most. Raises ValueError for others."""
    if isinstance(pricing, list):
        try:
            found = [float(p) for p in pricing]
        except (TypeError, ValueError) as error:
            raise ValueError(f"its price {pricing} is no list of numbers") from error
        if not all(map(math.isfinite, found)):
            raise ValueError(f"its price {pricing} is not finite")
    else:
        texts = [re.sub(r"[^\d.]", "", part) for part in str(pricing or "").split("$")[1:]]
        found = [float(p) for p in map(_decimal, texts) if p is not None]
    return tuple(found[:2]) or (NO_PRICE,)


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _options(choices: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(choices, dict):
        return {}
    out: dict[str, tuple[str, ...]] = {}
    for name, contents in choices.items():
        if contents is not None:
            out[str(name).lower()] = tuple(_value(c) for c in _sequence(contents))
    return out


def _sequence(contents: Any) -> Sequence[Any]:
    return contents if isinstance(contents, list) else []


def _texts(known: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = known.get(key) or []
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"its {key} in the attribute file are no list of words")
    return tuple(found)


def _value(content: Any) -> str:
    if not isinstance(content, dict) or "value" not in content:
        raise ValueError(f"an option has no value: {content!r:.80}")
    return str(content["value"]).strip().replace("/", " | ").lower()
