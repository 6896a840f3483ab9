"""Which episodes enter a statement: pools by task, and one rollout per task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sentinel.cascade.table import Rounds
from sentinel.errors import UserError
from sentinel.splits import Pool, split_tasks

_STREAM = 1
"""Keeps the draw of rollouts apart from that of the pools under one seed."""


def in_pools(
    rounds: Rounds, shares: Mapping[Pool, str], seed: int, unit: str = "task"
) -> dict[Pool, Rounds]:
    """Episodes of each pool: the table's own pools where it has them, else drawn by seed over tasks
    (`unit` "group": over groups). Raises UserError for a pool that is needed and empty.
    """
    if (rounds.pool != "").any():
        found = {pool: rounds.take(rounds.pool == str(pool)) for pool in shares}
        empty = [str(p) for p, part in found.items() if not len(part) and p in _NEEDED]
        if empty:
            raise UserError(
                f"the pools {', '.join(empty)} of cell {rounds.cell} have no episode",
                "give rows of every pool, or leave the column pool out",
            )
        return found
    names = rounds.unit(unit)
    place = split_tasks(set(names), shares, seed)
    where = np.array([place[name] for name in names], dtype=object)
    return {pool: rounds.take(where == pool) for pool in shares}


_NEEDED = (Pool.CALIBRATION, Pool.VALIDATION, Pool.TEST)


def one_rollout(rounds: Rounds, seed: int, unit: str = "task") -> Rounds:
    """One episode per task, drawn by seed from the ids alone, before any outcome is seen.

    Rollouts of one task are not independent, and a binomial bound counts independent successes.
    """
    names = rounds.unit(unit)
    # Keys go to episodes in order of their ids, so that the order of rows changes nothing.
    order = np.lexsort((rounds.episode.astype(str), names.astype(str)))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM])))
    key = rng.random(len(rounds))
    best: dict[str, tuple[float, int]] = {}
    for i, k in zip(order, key, strict=True):
        name = str(names[i])
        if name not in best or k < best[name][0]:
            best[name] = (float(k), int(i))
    return rounds.take(np.array(sorted(i for _, i in best.values()), dtype=np.int64))


def repeated(rounds: Rounds, unit: str = "task") -> bool:
    """Does some task have more than one episode here?"""
    return len(set(rounds.unit(unit))) < len(rounds)


def labelled(rounds: Rounds) -> Rounds:
    """Episodes whose outcome is known; the others are counted and enter nothing."""
    return rounds.take(rounds.labelled)
