"""Which tasks a run uses, and the `tasks` table: pool, fold and group of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from sentinel import tables
from sentinel.benchmarks.base import Benchmark, Task
from sentinel.errors import UserError
from sentinel.splits import (
    Manifest,
    Pool,
    dataset_hash,
    make_folds,
    make_pools,
    read_manifest,
    refuse_one_kind,
)


def draw_pools(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    seed: int = 42,
    calibration: float | str = "0.2",
    heldout: float | str = "0.2",
    manifest_file: str | None = None,
) -> Manifest:
    """Pools of every task of a benchmark, fixed by the data set or drawn by group.

    A data set may fix some (its `agent` pool); the rest are drawn among themselves.

    The manifest covers the whole data set, whatever part of it a run uses: its hash names the
    held-out pool in the ledger. It holds no folds (those belong to the tasks a run uses).
    `manifest_file` holds the pools instead; UserError where it was made for another data set, or
    where it places tasks otherwise than the data set does (an `agent` pool of another share).
    """
    group = {t.task_id: t.group for t in tasks}
    answerable = {t.task_id: t.answerable for t in tasks}
    if len(group) != len(tasks):
        raise ValueError(f"benchmark {benchmark.name} repeats a task id")
    dataset = dataset_hash(group, answerable, {t.task_id: t.text for t in tasks})
    fixed = benchmark.pools() or {}
    if manifest_file is not None:
        manifest = read_manifest(manifest_file, dataset)
        _refuse_other_pools(manifest, fixed, manifest_file)
        return manifest
    pools = {t: Pool(fixed[t]) for t in group if t in fixed}
    if left := {t: g for t, g in group.items() if t not in pools}:
        pools |= make_pools(left, answerable, seed, calibration, heldout)
    return Manifest(benchmark.name, dataset, seed, group, pools, {})


def _refuse_other_pools(manifest: Manifest, fixed: Mapping[str, str], path: str) -> None:
    """What an agent was trained on must not measure it, whatever a file says."""
    other = sum(
        pool != fixed[t] if t in fixed else pool == Pool.AGENT for t, pool in manifest.pool.items()
    )
    if other:
        raise UserError(
            f"pool manifest {path} places {other} tasks of {manifest.benchmark} in other pools "
            "than the settings of the benchmark do",
            "set agent_share and agent_seed as they were when it was written, "
            "or remove pools.manifest_file to draw the pools anew",
        )


def choose(
    tasks: Sequence[Task], pools: Mapping[str, Pool], limit: int | None, seed: int
) -> list[Task]:
    """At most `limit` tasks in the order given, every pool and answerability in its share.

    Tasks of the `agent` pool are never collected. Each (pool, answerable) stratum is permuted by
    the seed and spread evenly over [0, 1); the `limit` smallest positions are taken. A larger
    limit therefore only adds tasks, so that finished episodes stay good.
    """
    usable = [t for t in tasks if pools[t.task_id] != Pool.AGENT]
    if limit is None or limit >= len(usable):
        return usable
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    for task in usable:
        strata[str(pools[task.task_id]), str(task.answerable)].append(task.task_id)
    places: list[tuple[float, tuple[str, str], str]] = []
    for number, name in enumerate(sorted(strata)):
        ids = sorted(strata[name])
        np.random.Generator(np.random.PCG64([seed, number])).shuffle(ids)
        places += [((rank + 0.5) / len(ids), name, id_) for rank, id_ in enumerate(ids)]
    taken = {id_ for _, _, id_ in sorted(places)[:limit]}
    return [t for t in usable if t.task_id in taken]


def task_table(
    tasks: Sequence[Task], pools: Mapping[str, Pool], folds: int = 5, seed: int = 42
) -> pa.Table:
    """The `tasks` table, with cross-fitting folds drawn over the train tasks among `tasks`.

    Raises UserError where a pool of these tasks, fixed or drawn, lacks a kind of question (a limit
    may leave none of it), or where the train tasks cannot be folded.
    """
    if not tasks:
        raise UserError("the benchmark has no task to collect", "raise collect.limit")
    used = {t.task_id: pools[t.task_id] for t in tasks}
    refuse_one_kind(used, {t.task_id: t.answerable for t in tasks})
    train = [t for t in tasks if pools[t.task_id] == Pool.TRAIN]
    groups = {t.task_id: t.group for t in train}
    fold = make_folds(groups, {t.task_id: t.answerable for t in train}, folds, seed)
    rows = [
        {
            "benchmark": t.benchmark,
            "task_id": t.task_id,
            "group": t.group,
            "pool": str(pools[t.task_id]),
            "fold": fold.get(t.task_id),
            "text": t.text,
            "answerable": t.answerable,
            "gold": t.gold,
            "meta": t.meta_json(),
        }
        for t in tasks
    ]
    return tables.TASKS.sort(tables.TASKS.from_rows(rows))
