"""The frozen world: recipes and tasks in one hashed file, so that a task id always names a task.

Written once by `write_world(make_world(), FILE)`; never drawn at load time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.craft.goals import Goal, draw_goal, goal_items
from sentinel.benchmarks.craft.rules import Amount, Recipe, RecipeBook
from sentinel.benchmarks.craft.world import make_book

FORMAT = 1
WORLD_SEED, TASK_SEED, PER_GOAL = 5, 1, 5
FILE = Path(__file__).parent / "data" / "world.json"


@dataclass(frozen=True)
class World:
    """A recipe book with its frozen tasks (id → goal) and the hash of both."""

    book: RecipeBook
    goals: Mapping[str, Goal]
    sha256: str


def make_world(
    world_seed: int = WORLD_SEED, task_seed: int = TASK_SEED, per_goal: int = PER_GOAL
) -> World:
    """Draw a world; the shipped file holds the default one."""
    book = make_book(world_seed)
    found: list[Goal] = []
    for number, item in enumerate(goal_items(book)):
        rng = np.random.default_rng([task_seed, number])
        texts: set[str] = set()
        while len(texts) < per_goal:
            goal = draw_goal(book, item, rng)
            if goal.text not in texts:
                texts.add(goal.text)
                found.append(goal)
    order = np.random.default_rng(task_seed).permutation(len(found))
    goals = {f"k{i:04d}": found[at] for i, at in enumerate(order)}
    return World(book, goals, content_hash(to_content(book, goals)))


def to_content(book: RecipeBook, goals: Mapping[str, Goal]) -> dict[str, Any]:
    """What the hash covers."""
    return {
        "format": FORMAT,
        "recipes": [
            [r.out.count, r.out.name, [[p.count, p.name] for p in r.parts]] for r in book.recipes
        ],
        "tags": {tag: list(items) for tag, items in book.tags.items()},
        "tasks": {task_id: goal.to_dict() for task_id, goal in goals.items()},
    }


def content_hash(content: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=4)
def load_world(path: Path = FILE) -> World:
    """Read a world file. Raises DataError when it is missing, damaged or not what was frozen."""
    again = "restore the file, or reinstall sentinel-suite"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        claimed = content.pop("sha256")
        if content["format"] != FORMAT:
            raise DataError(f"craft: {path} has format {content['format']}, not {FORMAT}", again)
        if content_hash(content) != claimed:
            raise DataError(f"craft: {path} was changed after it was frozen", again)
        recipes = tuple(
            Recipe(Amount(n, name), tuple(Amount(*p) for p in parts))
            for n, name, parts in content["recipes"]
        )
        tags = {tag: tuple(items) for tag, items in content["tags"].items()}
        goals = {
            task_id: Goal(**(row | {"commands": tuple(row["commands"])}))
            for task_id, row in content["tasks"].items()
        }
        return World(RecipeBook(recipes, tags), goals, claimed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"craft: {path} cannot be read ({error})", again) from error


def write_world(world: World, path: Path) -> None:
    """Write a world file: one recipe or task per line, its hash last."""
    content = to_content(world.book, world.goals)
    lines = [f'"format": {FORMAT}']
    recipes = ",\n".join(f"  {json.dumps(r)}" for r in content["recipes"])
    lines.append(f'"recipes": [\n{recipes}\n]')
    lines.append(f'"tags": {json.dumps(content["tags"])}')
    tasks = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in content["tasks"].items())
    lines.append(f'"tasks": {{\n{tasks}\n}}')
    lines.append(f'"sha256": "{content_hash(content)}"')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
