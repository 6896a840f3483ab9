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


def write_familiar_recipes(folder: Path) -> Path:
    """A folder of 44 recipes, depth 1 to 3, in words that the embedded crafting agents know; their
    materials are made as in craft, so that some goals succeed in TextCraft's prompt too."""
    from sentinel.benchmarks.craft.world import EARTHS, EXTRAS, FIBRES, METALS, SIMPLE, WOODS

    made: dict[str, Mapping[str, Any]] = {}

    def put(name: str, count: int, *parts: str) -> None:
        item = name.replace(" ", "_")
        made[item] = shapeless(item, count, *(p.replace(" ", "_") for p in parts))

    for i in range(4):
        wood, metal, fibre, earth = WOODS[i], METALS[i], FIBRES[i], EARTHS[i]
        put(f"{wood} plank", 2, f"{wood} log")
        put(f"{wood} rod", 2, f"{wood} plank")
        put(f"{wood} {SIMPLE[i]}", 1, f"{wood} plank", f"{wood} plank", EXTRAS[i])
        put(f"{metal} bar", 1, f"{metal} ore", f"{metal} ore", "coal")
        put(f"{metal} nail", 3, f"{metal} bar")
        put(f"{metal} {SIMPLE[i + 3]}", 1, f"{metal} bar", EXTRAS[(i + 2) % 6])
        put(f"{fibre} thread", 2, f"raw {fibre}")
        put(f"{fibre} rope", 1, f"{fibre} thread", f"{fibre} thread")
        put(f"{fibre} {SIMPLE[i + 5]}", 1, f"{fibre} rope", EXTRAS[(i + 4) % 6])
        put(f"{earth} brick", 2, *[f"{earth} lump"] * 3, "coal")
        put(f"{earth} {SIMPLE[(i + 7) % 10]}", 1, f"{earth} brick", EXTRAS[(i + 1) % 6])
    folder.mkdir(parents=True, exist_ok=True)
    for name, recipe in made.items():
        (folder / f"{name}.json").write_text(json.dumps(recipe))
    return folder
