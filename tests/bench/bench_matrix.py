"""The whole matrix: 6 cells × 3 scorers × 6 targets × 20 seeds on Ray Tune, two workers.

Timed from `round_scores` files to rows and summary on disk: with Ray Tune's start, and with Ray's
own start and end besides. One search serves every target, one trial is a block of seeds. The rows
must be those of a plain loop, bit for bit.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Line, main, seconds, summary

from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs import cascade_sweep
from sentinel.cascade import CascadeConfig
from sentinel.cascade.run import ALLOCATIONS
from sentinel.cascade.sweep import TARGETS

CELLS, SCORERS, SEEDS, BLOCK, WORKERS = 6, 3, 20, 5, 2
TASKS, ROLLOUTS, ROUNDS = 150, 10, 20
BAR_SECONDS = 60.0
REPEATS = 3


def make(cell: int, tasks: int) -> pa.Table:
    """One cell's `round_scores` under every scorer: seeded episodes of up to 20 rounds."""
    rng = np.random.default_rng(cell)
    E = tasks * ROLLOUTS
    task = np.repeat(np.arange(tasks), ROLLOUTS)
    success = rng.random(E) < 0.45
    T = np.where(success, rng.integers(1, 13, E), rng.integers(1, ROUNDS + 1, E))
    row = np.repeat(np.arange(E), T)
    r = np.arange(len(row)) - np.repeat(np.cumsum(T) - T, T) + 1
    cost = np.cumsum(rng.integers(100, 2000, (E, ROUNDS)), axis=1)
    parts = []
    for s in range(SCORERS):
        score = rng.normal(size=len(row)) + (0.5 + 0.5 * s) * ~success[row]
        columns = {
            "cell": np.full(len(row), f"cell-{cell}"),
            "scorer": np.full(len(row), f"scorer-{s}"),
            "episode_id": np.char.add("e", row.astype(str)),
            "task_id": np.char.add("t", task[row].astype(str)),
            "group": np.char.add("t", task[row].astype(str)),
            "round": r,
            "rounds_total": T[row],
            "score": score,
            "cost": cost[row, r - 1],
            "cost_total": cost[row, T[row] - 1],
            "success": success[row],
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def bench(tiny: bool) -> Iterator[Line]:
    """Seconds of the matrix on Ray Tune and in a plain loop; --tiny takes two small cells."""
    cells, tasks, seeds = (2, 40, 4) if tiny else (CELLS, TASKS, SEEDS)
    config = CascadeConfig.of(TARGETS, "paper", seeds=seeds)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = []
        for cell in range(cells):
            paths.append(root / f"{cell}.parquet")
            pq.write_table(make(cell, tasks), paths[-1])

        def run(name: str, cluster: Cluster) -> None:
            _, failed = cascade_sweep.run(paths, config, BLOCK, RunDir(root / name), cluster)
            assert not failed, failed

        whole, sweep = [], []
        for i in range(1 if tiny else REPEATS):
            start = time.perf_counter()
            with open_cluster("local", WORKERS, object_store_mb=256) as cluster:
                sweep.append(seconds(lambda i=i, cluster=cluster: run(f"ray-{i}", cluster)))
            whole.append(time.perf_counter() - start)
        plain = seconds(lambda: run("plain", Cluster("debug", 1, 0)))
        rows = [RunDir(root / name).read("cascade_rows") for name in ("ray-0", "plain")]
        assert rows[0].num_rows == cells * SCORERS * len(TARGETS) * seeds * len(ALLOCATIONS)
        assert rows[0].equals(rows[1]), "the rows of Ray Tune are not those of a plain loop"
        bar = None if tiny else BAR_SECONDS
        yield Line("matrix_tune", summary(sweep), "s", at_most=bar)
        yield Line("matrix_tune_with_ray_start", summary(whole), "s", at_most=bar)
        yield Line("matrix_plain_loop", summary([plain]), "s")


if __name__ == "__main__":
    sys.exit(main(__doc__, bench))
