"""Goal files: which goals a run has, each with its price cap and the hash of its instruction.

Nothing of the catalogue's text is in the file. Goals are made again from the catalogue and must be
the ones that were frozen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.webshop.goals import Goal
from sentinel.benchmarks.whole_file import write_text

FORMAT = 1


def write(goals: Mapping[str, Goal], *, catalogue: str, seed: int, path: Path) -> None:
    """Freeze goals; `catalogue` is the hash of the two files they come from."""
    rows = {goal_id: row(goal) for goal_id, goal in goals.items()}
    head = {"format": FORMAT, "catalogue": catalogue, "seed": seed}
    write_text(path, json.dumps({**head, "goals": rows}, indent=0) + "\n")


def row(goal: Goal) -> list[Any]:
    """Cap in dollars and hash of what is asked."""
    asked = json.dumps([goal.text, sorted(goal.options.items()), list(goal.attributes)])
    return [goal.cap, hashlib.sha256(asked.encode()).hexdigest()[:16]]


def read(path: Path, goals: Mapping[str, Goal], *, catalogue: str, seed: int) -> dict[str, Goal]:
    """The frozen ones among `goals`, in the file's order.

    Raises DataError for a file that is missing or damaged, for another catalogue or seed, and for a
    goal that is missing or has changed under its id.
    """
    again = "restore the files, or freeze the goals again: sentinel freeze CONFIG"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = dict(found["goals"])
        if found["format"] != FORMAT or not rows:
            raise ValueError(f"format {found['format']}, {len(rows)} goals")
        made = (("catalogue", found["catalogue"], catalogue), ("seed", found["seed"], seed))
    except FileNotFoundError as error:
        raise DataError(
            f"webshop: the goals are not frozen yet ({path})", "run: sentinel freeze CONFIG"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"webshop: {path} cannot be read ({error})", again) from error
    wrong = [k for k in rows if k not in goals or row(goals[k]) != rows[k]]
    if wrong:
        why = "is missing" if wrong[0] not in goals else "has changed under its id"
        raise DataError(
            f"webshop: {len(wrong)} of {len(rows)} goals of {path} are not what was frozen; "
            f"{wrong[0]} {why}",
            again,
        )
    for what, has, wants in made:
        if has != wants:
            raise DataError(f"webshop: {path} was frozen with {what} {has}, not {wants}", again)
    return {goal_id: goals[goal_id] for goal_id in rows}
