"""A small recipe folder of our own in the form of Minecraft 1.16."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def shaped(out: str, count: int, pattern: list[str], group: str = "", **key: Any) -> dict[str, Any]:
    """A shaped recipe; a part is `item` or `#tag`, or a list of them."""
    made = {
        "type": "minecraft:crafting_shaped",
        "pattern": pattern,
        "key": {sign: _part(part) for sign, part in key.items()},
        "result": {"item": f"minecraft:{out}", "count": count},
    }
    return made | ({"group": group} if group else {})


def shapeless(out: str, count: int, *parts: Any, group: str = "") -> dict[str, Any]:
    """A shapeless recipe."""
    made = {
        "type": "minecraft:crafting_shapeless",
        "ingredients": [_part(p) for p in parts],
        "result": {"item": f"minecraft:{out}", "count": count} if count > 1 else f"minecraft:{out}",
    }
    return made | ({"group": group} if group else {})


def _part(part: Any) -> Any:
    if isinstance(part, list):
        return [_part(p) for p in part]
    kind = "tag" if part.startswith("#") else "item"
    return {kind: f"minecraft:{part.removeprefix('#')}"}


RECIPES: Mapping[str, Mapping[str, Any]] = {
    "oak_planks": shapeless("oak_planks", 4, "#oak_logs", group="planks"),
    "birch_planks": shapeless("birch_planks", 4, "birch_logs", group="planks"),
    "stick": shaped("stick", 4, ["a", "a"], group="sticks", a="#planks"),
    "torch": shaped("torch", 3, ["c", "s", "c"], s="stick", c=["coal", "charcoal"]),
    "oak_ladder": shaped("oak_ladder", 3, ["s s", "sps"], s="stick", p="oak_planks"),
    "signal": shapeless("signal", 1, "torch", "oak_ladder"),
    "gem": shapeless("gem", 9, "gem_block"),
    "charcoal": {"type": "minecraft:smelting", "ingredient": {"item": "minecraft:oak_log"},
                 "result": "minecraft:charcoal"},
    "zip": shapeless("zip", 1, "zap", "coal"),
    "zzap": shapeless("zap", 1, "zip"),
}  # fmt: skip
"""Ten files, seven recipes after the filters."""
SHA256 = "de9a18710cc7f7bf368d3772c9370c0bcfd2434bbc89a840f3346494d8edecc0"


def write_recipes(folder: Path, more: Mapping[str, Any] | None = None) -> Path:
    """Write the folder; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, recipe in {**RECIPES, **(more or {})}.items():
        (folder / f"{name}.json").write_text(json.dumps(recipe, indent=2))
    return folder
