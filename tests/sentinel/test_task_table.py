from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel import tables, task_table
from sentinel.benchmarks.base import Task
from sentinel.errors import UserError
from sentinel.splits import Pool, write_manifest


def make_tasks(n: int, groups: int = 60) -> list[Task]:
    return [
        Task("b", f"{i:04d}", f"g{i % groups}", f"q{i}", answerable=i % groups >= groups // 3)
        for i in range(n)
    ]


def benchmark(pools: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(name="b", pools=lambda: pools)


def test_pools_are_drawn_over_all_tasks_and_named_by_one_hash() -> None:
    tasks = make_tasks(300)
    manifest = task_table.draw_pools(benchmark(), tasks)
    assert set(manifest.pool) == {t.task_id for t in tasks}
    assert manifest.hash() == task_table.draw_pools(benchmark(), list(reversed(tasks))).hash()
    assert manifest.hash() != task_table.draw_pools(benchmark(), tasks, seed=1).hash()


def test_pools_fixed_by_the_data_set_are_kept() -> None:
    tasks = make_tasks(10)
    fixed = {t.task_id: "agent" if t.task_id < "0004" else "train" for t in tasks}
    manifest = task_table.draw_pools(benchmark(fixed), tasks)
    assert Counter(manifest.pool.values()) == {Pool.AGENT: 4, Pool.TRAIN: 6}
    chosen = task_table.choose(tasks, manifest.pool, None, 0)
    assert [t.task_id for t in chosen] == [t.task_id for t in tasks[4:]]


def test_what_the_data_set_does_not_place_is_drawn() -> None:
    tasks = make_tasks(300)
    fixed = {t.task_id: "agent" for t in tasks[::5]}
    pools = task_table.draw_pools(benchmark(fixed), tasks).pool
    rest = [t for t in tasks if t.task_id not in fixed]
    drawn = task_table.draw_pools(benchmark(), rest).pool
    assert {t: pools[t] for t in drawn} == drawn
    assert {pools[t] for t in fixed} == {Pool.AGENT}


def test_pools_are_those_of_a_manifest_of_the_same_data_set(tmp_path: Path) -> None:
    tasks = make_tasks(300)
    drawn = task_table.draw_pools(benchmark(), tasks, seed=5)
    file = str(tmp_path / "m.json")
    write_manifest(file, drawn)
    again = task_table.draw_pools(benchmark(), tasks, manifest_file=file)
    assert again == drawn
    assert again.hash() == drawn.hash()
    with pytest.raises(UserError, match="another data set"):
        task_table.draw_pools(benchmark(), tasks[1:], manifest_file=file)


@pytest.mark.parametrize(("then", "now"), [(None, 5), (5, None), (5, 4)])
def test_a_manifest_with_another_agent_pool_is_refused(
    tmp_path: Path, then: int | None, now: int | None
) -> None:
    tasks = make_tasks(300)

    def every(n: int | None) -> dict[str, str] | None:
        return None if n is None else {t.task_id: "agent" for t in tasks[::n]}

    file = str(tmp_path / "m.json")
    drawn = task_table.draw_pools(benchmark(every(then)), tasks)
    write_manifest(file, drawn)
    assert task_table.draw_pools(benchmark(every(then)), tasks, manifest_file=file) == drawn
    with pytest.raises(UserError, match="in other pools than the settings") as error:
        task_table.draw_pools(benchmark(every(now)), tasks, manifest_file=file)
    assert "agent_share" in str(error.value)


@settings(max_examples=25, deadline=None)
@given(st.integers(20, 299), st.integers(0, 1000))
def test_a_limit_keeps_shares_and_a_larger_one_only_adds(limit: int, seed: int) -> None:
    tasks = make_tasks(300)
    pools = task_table.draw_pools(benchmark(), tasks).pool
    chosen = task_table.choose(tasks, pools, limit, seed)
    assert len(chosen) == limit
    more = task_table.choose(tasks, pools, limit + 1, seed)
    assert {t.task_id for t in chosen} < {t.task_id for t in more}
    kind = {t.task_id: (pools[t.task_id], t.answerable) for t in tasks}
    whole, part = Counter(kind.values()), Counter(kind[t.task_id] for t in chosen)
    for stratum, n in whole.items():
        assert abs(part[stratum] - n * limit / 300) <= 1
    assert [t.task_id for t in chosen] == sorted(t.task_id for t in chosen)


def test_the_table_has_folds_for_train_only_and_keeps_ids_as_text() -> None:
    tasks = make_tasks(300)
    pools = task_table.draw_pools(benchmark(), tasks).pool
    table = tables.TASKS.check(task_table.task_table(tasks, pools))
    rows = table.to_pylist()
    assert all((r["fold"] is not None) == (r["pool"] == "train") for r in rows)
    assert rows[0]["task_id"] == "0000"
    folds = {(r["group"], r["fold"]) for r in rows if r["fold"] is not None}
    assert len(folds) == len({g for g, _ in folds}), "a group lies in one fold"


def test_a_pool_without_both_kinds_is_refused_fixed_or_limited() -> None:
    tasks = make_tasks(300)
    pools = task_table.draw_pools(benchmark(), tasks).pool
    few = [t for t in tasks if t.answerable or pools[t.task_id] != Pool.CALIBRATION]
    with pytest.raises(UserError, match="calibration has no unanswerable"):
        task_table.task_table(few, pools)
    fixed = dict.fromkeys(pools, "train")
    manifest = task_table.draw_pools(benchmark(fixed), tasks)
    with pytest.raises(UserError, match="calibration has no answerable"):
        task_table.task_table(tasks, manifest.pool)


def test_no_task_and_repeated_ids() -> None:
    with pytest.raises(UserError, match="no task"):
        task_table.task_table([], {})
    with pytest.raises(ValueError, match="repeats"):
        task_table.draw_pools(benchmark(), [*make_tasks(3), *make_tasks(1)])
