"""Pools of the clinic, and the groups that agents never see.

The plain rule for pools shuffles answerable and unanswerable groups together, and with a few dozen
topics the unanswerable share of a pool then wanders by more than a point. Here the same rule is
applied to each kind by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sentinel.benchmarks.base import Task
from sentinel.splits import make_pools

POOL_SEED = 42
WITHHELD_EVERY = 7


def shuffled_groups(groups: Iterable[str], seed: int = POOL_SEED) -> list[str]:
    """Sorted group ids, shuffled with PCG64(seed)."""
    ids = sorted(set(groups))
    np.random.Generator(np.random.PCG64(seed)).shuffle(ids)
    return ids


def stratified_pools(tasks: Sequence[Task]) -> dict[str, str]:
    """task_id → pool: whole groups, each kind filled to its share, calibration first.

    Raises UserError when a pool would hold only one kind of question.
    """
    pool_of: dict[str, str] = {}
    for answerable in (True, False):
        groups = {task.task_id: task.group for task in tasks if task.answerable is answerable}
        # one kind at a time: the rule's own check for two kinds does not apply
        pool_of |= make_pools(groups, dict.fromkeys(groups), POOL_SEED)
    return {task.task_id: str(pool_of[task.task_id]) for task in tasks}


def withheld(answerable: Iterable[str], unanswerable: Iterable[str], seed: int) -> frozenset[str]:
    """Every seventh group of each kind, in the order in which pools are filled.

    So about 14 % are withheld, and evenly from all three pools whatever their sizes; `seed` shifts
    the start.
    """
    chosen: set[str] = set()
    for kind in (answerable, unanswerable):
        chosen.update(shuffled_groups(kind)[seed % WITHHELD_EVERY :: WITHHELD_EVERY])
    return frozenset(chosen)
