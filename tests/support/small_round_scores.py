"""Writes a small, seeded `round_scores` table (`python small_round_scores.py FILE`)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

POOLS = ("fit", "calibration", "calibration", "validation", "validation", "certification", "test")


def table(
    seed: int = 0,
    tasks: int = 400,
    rollouts: int = 2,
    pools: bool = False,
    separation: float = 2.5,
    most_rounds: int = 12,
) -> pa.Table:
    """Episodes of up to `most_rounds` rounds; failing ones are longer and score higher."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(tasks):
        hard = rng.normal(0, 0.8)
        for rollout in range(rollouts):
            success = bool(rng.normal(0.4, 1) > hard)
            total = int(rng.integers(1, most_rounds // 2 if success else most_rounds) + 1)
            cost = np.cumsum(rng.integers(50, 500, total))
            for r in range(1, total + 1):
                row = {
                    "episode_id": f"w/a/t{task:04}/{rollout}",
                    "task_id": f"t{task:04}",
                    "group": f"t{task:04}",
                    "round": r,
                    "rounds_total": total,
                    "score": float(rng.normal(0 if success else separation, 1)),
                    "cost": int(cost[r - 1]),
                    "cost_total": int(cost[-1]),
                    "success": success,
                }
                if pools:
                    row["pool"] = POOLS[task % len(POOLS)]
                rows.append(row)
    return pa.Table.from_pylist(rows)


if __name__ == "__main__":
    pq.write_table(table(), Path(sys.argv[1]))
