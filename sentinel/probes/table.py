"""`round_scores` of a cell under one scorer: what `sentinel cascade` reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sentinel import tables
from sentinel.probes.cell import Cell
from sentinel.probes.scorers import Scored


def table(cell: Cell, scored: Scored) -> pa.Table:
    """One row per episode and round r = 1…min(T, G); later rounds have no gate and are left out.

    Costs are integers: cumulative through round r, each round's full prompt counted.
    """
    r = np.arange(1, cell.gates + 1)
    owner, at = np.nonzero(cell.T[:, None] >= r)
    scores = scored.score[owner, at]
    spec = tables.ROUND_SCORES.columns

    def of_episode(values: object, name: str) -> pa.Array:
        taken = np.array(values, dtype=object)[owner]
        return pa.array(taken.tolist(), spec[name].type)

    columns = {
        "cell": pa.array([cell.name] * len(owner), pa.string()),
        "scorer": pa.array([scored.scorer] * len(owner), pa.string()),
        "episode_id": of_episode(cell.episode, "episode_id"),
        "task_id": of_episode(cell.task, "task_id"),
        "group": of_episode(cell.group, "group"),
        "pool": of_episode(scored.split.pool, "pool"),
        "round": pa.array(at.astype(np.int64) + 1, pa.int64()),
        "rounds_total": of_episode(cell.T, "rounds_total"),
        "score": pa.array(scores, pa.float64(), mask=np.isnan(scores)),
        "cost": pa.array(cell.cost[owner, at], pa.int64()),
        "cost_total": of_episode(cell.cost_total, "cost_total"),
        "success": of_episode(cell.success, "success"),
    }
    found = pa.table(columns, schema=tables.ROUND_SCORES.schema)
    return tables.ROUND_SCORES.sort(tables.ROUND_SCORES.check(found))
