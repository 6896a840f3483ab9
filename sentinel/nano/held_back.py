"""Tasks of the `agent` pool that are kept out of training, so that an agent's level can be set.

The pools that a monitor is fitted and judged on are not looked at for that: a dial is turned until
the held-back tasks say what was wanted (`held_back` in a recipe).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentinel.benchmarks.alike import cliques
from sentinel.benchmarks.base import Task
from sentinel.errors import UserError

SOURCE = "source"
"""Key of `Task.meta`: the id of the task that a made-up one was derived from."""


def hold_back(tasks: Sequence[Task], n: int, seed: int) -> tuple[list[Task], list[Task]]:
    """Part the agent pool: what to train on, and n tasks to measure on, seeded.

    Held back are tasks as they were found, each once, none derived from another. Whatever shares a
    text, a tuple of values or a gold query with one of them, or was derived from it, is trained on
    no more. Raises UserError where n leaves less than half of the pool to train on.
    """
    members = list(cliques(tasks))
    order = np.random.default_rng(seed).permutation(len(members))
    held: list[Task] = []
    left_out: set[str] = set()
    for number in order:
        if len(held) == n:
            break
        found = [t for t in members[number] if SOURCE not in t.meta]
        if found:
            held.append(found[0])
            left_out.update(t.task_id for t in members[number])
    kept = [t for t in tasks if t.task_id not in left_out and t.meta.get(SOURCE) not in left_out]
    if len(held) < n or 2 * len(kept) < len(tasks):
        raise UserError(
            f"held_back: {n} of {len(tasks)} tasks of the agent pool leave {len(kept)} to train on",
            "hold fewer back, or draw more questions",
        )
    return kept, held
