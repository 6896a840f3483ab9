"""A small catalogue of our own in WebShop's two files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def product(asin: str, name: str, **changes: Any) -> dict[str, Any]:
    """One item of the product file."""
    return {
        "asin": asin,
        "name": name,
        "category": "garden",
        "product_category": "Home › Garden › Pots",
        "query": "Flower Pots",
        "full_description": f"{name}, made to last.",
        "small_description": ["hand made", "drains well"],
        "pricing": "$12.50",
        "customization_options": {
            "Color": [{"value": "Red"}, {"value": "Moss/Green"}],
            "Size": [{"value": "Small"}, {"value": "Large"}],
        },
        "images": [],
    } | changes


PRODUCTS = [
    product("B000000001", "Clay Flower Pot"),
    product("B000000002", "Steel Watering Can", query="watering cans", pricing="$20.00$30.00"),
    product(
        "B000000003",
        "Wool Blanket",
        query="blankets",
        product_category="Home › Bed",
        category="bed",
        pricing="",
        customization_options="",
    ),
    *(product(f"B0000001{i:02d}", f"Plain Pot Number {i}") for i in range(15)),
]
ATTRIBUTES = {
    "B000000001": {
        "attributes": ["hand made", "frost proof"],
        "instruction": "Find me hand made flower pots",
        "instruction_attributes": ["hand made"],
    },
    "B000000002": {
        "attributes": ["rust free"],
        "instruction": "Find me rust free watering cans",
        "instruction_attributes": ["rust free"],
    },
    "B000000003": {"attributes": ["pure wool"]},
}


def write_catalogue(folder: Path, products: list[dict[str, Any]] | None = None) -> dict[str, str]:
    """Write both files; the settings that name them."""
    found = {"products_file": folder / "items.json", "attributes_file": folder / "ins.json"}
    found["products_file"].write_text(json.dumps(PRODUCTS if products is None else products))
    found["attributes_file"].write_text(json.dumps(ATTRIBUTES))
    return {key: str(path) for key, path in found.items()}
