"""Pools of the clinic, and the groups that agents never see.

The plain rule for pools shuffles answerable and unanswerable groups together, and with a few dozen
topics the unanswerable share of a pool then wanders by more than a point. Here the same rule is
applied to each kind by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sentinel.benchmarks.base import Task

POOL_SEED = 42
WITHHELD_EVERY = 7


def shuffled_groups(groups: Iterable[str], seed: int = POOL_SEED) -> list[str]:
    """Sorted group ids, shuffled with PCG64(seed)."""
    ids = sorted(set(groups))
    np.random.Generator(np.random.PCG64(seed)).shuffle(ids)
    return ids


def stratified_pools(
    tasks: Sequence[Task], calibration: float = 0.2, heldout: float = 0.2
) -> dict[str, str]:
    """task_id → pool: whole groups, each kind filled to its share, calibration first."""
    pool_of: dict[str, str] = {}
    for answerable in (True, False):
        kind = [task for task in tasks if task.answerable is answerable]
        sizes = Counter(task.group for task in kind)
        pool_of_group = _fill(sizes, {"calibration": calibration, "heldout": heldout})
        pool_of |= {task.task_id: pool_of_group[task.group] for task in kind}
    return {task.task_id: pool_of[task.task_id] for task in tasks}


def _fill(sizes: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, str]:
    total = sum(sizes.values())
    pools, result = list(shares), {}
    filled = 0
    for group in shuffled_groups(sizes):
        while pools and filled >= shares[pools[0]] * total:
            pools.pop(0)
            filled = 0
        result[group] = pools[0] if pools else "train"
        filled += sizes[group]
    return result


def withheld(answerable: Iterable[str], unanswerable: Iterable[str], seed: int) -> frozenset[str]:
    """Every seventh group of each kind, in the order in which pools are filled.

    So about 14 % are withheld, and evenly from all three pools whatever their sizes; `seed` shifts
    the start.
    """
    chosen: set[str] = set()
    for kind in (answerable, unanswerable):
        chosen.update(shuffled_groups(kind)[seed % WITHHELD_EVERY :: WITHHELD_EVERY])
    return frozenset(chosen)
