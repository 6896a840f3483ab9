"""Task files of TextCraft: written once by `sentinel freeze`, read back by every run.

One JSON file: the preset, the seed, the hash of the recipe folder, per task id its goal, commands,
depth and oracle length (`steps`), and a hash over all of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.textcraft.goals import Goal
from sentinel.benchmarks.whole_file import write_text

FORMAT = 1


def content(goals: Mapping[str, Goal], *, recipes: str, preset: str, seed: int) -> dict[str, Any]:
    """What a task file says and its hash covers; `recipes` is the folder's hash."""
    return {
        "format": FORMAT,
        "preset": preset,
        "seed": seed,
        "recipes_sha256": recipes,
        "tasks": {task_id: goal.to_dict() for task_id, goal in goals.items()},
    }


def content_hash(found: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON; the order of tasks counts."""
    text = json.dumps(
        {**found, "tasks": list(found["tasks"].items())}, sort_keys=True, ensure_ascii=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def write(found: Mapping[str, Any], path: Path) -> None:
    """Write a task file: one task per line, the hash last; never half a file."""
    head = [f'"{k}": {json.dumps(v)}' for k, v in found.items() if k != "tasks"]
    tasks = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in found["tasks"].items())
    lines = [*head, f'"tasks": {{\n{tasks}\n}}', f'"sha256": "{content_hash(found)}"']
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path, *, recipes: str, preset: str, seed: int) -> tuple[dict[str, Goal], str]:
    """The goals of a task file and its hash.

    Raises DataError for a file that is missing, damaged, changed after it was frozen, or made from
    other recipes, another preset or another seed than this run's.
    """
    again = "freeze the tasks again (sentinel freeze CONFIG), or restore the file"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        claimed = found.pop("sha256")
        if found["format"] != FORMAT:
            raise DataError(f"textcraft: {path} has format {found['format']}, not {FORMAT}", again)
        if content_hash(found) != claimed:
            raise DataError(f"textcraft: {path} was changed after it was frozen", again)
        goals = {
            task_id: Goal(**(row | {"commands": tuple(row["commands"])}))
            for task_id, row in found["tasks"].items()
        }
    except FileNotFoundError as error:
        raise DataError(
            f"textcraft: the tasks are not frozen yet ({path})", "run: sentinel freeze CONFIG"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"textcraft: {path} cannot be read ({error})", again) from error
    for what, has, wants in (
        ("recipes with hash", found["recipes_sha256"], recipes),
        ("preset", found["preset"], preset),
        ("seed", found["seed"], seed),
    ):
        if has != wants:
            raise DataError(
                f"textcraft: {path} was frozen from {what} {has}, this run has {wants}", again
            )
    return goals, claimed
