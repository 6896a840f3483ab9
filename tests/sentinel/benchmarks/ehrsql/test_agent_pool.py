"""The agent pool: a share of each group, nothing of it in another pool, some groups withheld."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from sentinel.benchmarks.alike import keys
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.ehrsql import EhrsqlBenchmark, agent_pool
from sentinel.errors import UserError
from sentinel.splits import Pool
from sentinel.task_table import choose, draw_pools

DATA = os.environ.get("SENTINEL_TEST_DATA")


def made(groups: int = 28, each: int = 10) -> list[Task]:
    """Answerable groups of distinct questions, and a quarter of them without answers."""
    tasks = []
    for g in range(groups):
        for i in range(each):
            answerable = g % 4 != 0
            number = 100 * g + i
            tasks.append(
                Task(
                    "b",
                    f"{g:02d}-{i}",
                    f"group {g:02d}",
                    f"What of patient {number} in group {g}?",
                    answerable,
                    f"select {g} from t where id = {number}" if answerable else None,
                    {"value": {"patient_id": number}} if answerable else {},
                )
            )
    return tasks


def test_a_share_of_each_group_and_nothing_of_withheld_ones():
    tasks = made()
    chosen, without = agent_pool.agent_pool(tasks, 0.4, 7), agent_pool.withheld(tasks, 7)
    size = Counter(t.group for t in tasks if t.task_id in chosen)
    assert all(size[t.group] == (0 if t.group in without else 4) for t in tasks)
    kinds = Counter(t.answerable for t in tasks if t.group in without)
    assert kinds == {True: 30, False: 10}  # every seventh group of either kind
    assert agent_pool.agent_pool(tasks[::-1], "0.4", 7) == chosen
    assert agent_pool.agent_pool(tasks, 0.4, 8) != chosen


@pytest.mark.parametrize("what", ["text", "gold", "values"])
def test_questions_that_share_something_stay_on_one_side(what):
    tasks = []
    for task in made():
        number = int(task.task_id[-1]) // 2  # pairs
        change = {
            "text": {"text": f"WHAT of {task.group}:  {number}"},
            "gold": {"gold": f"select {number}  from {task.group}"} if task.gold else {},
            "values": {"meta": {"value": {"patient_id": number}}} if task.gold else {},
        }[what]
        fields = {name: getattr(task, name) for name in Task.__dataclass_fields__}
        tasks.append(Task(**{**fields, **change}))
    chosen = agent_pool.agent_pool(tasks, 0.4, 7)
    one = {k for t in tasks if t.task_id in chosen for k in keys(t)}
    other = {k for t in tasks if t.task_id not in chosen for k in keys(t)}
    assert one
    assert not one & other


def test_a_question_that_is_in_two_groups_is_not_the_agents():
    tasks = [*made(), Task("b", "x", "group 01", "What of patient 200 in group 2?", True, "q")]
    chosen = [agent_pool.agent_pool(tasks, 0.9, seed) for seed in range(7)]
    assert not any({"x", "02-0"} & ids for ids in chosen)


def test_a_share_out_of_range_is_refused():
    with pytest.raises(UserError, match="agent_share is 1"):
        agent_pool.agent_pool(made(), 1, 7)


def test_more_questions_have_the_pools_values_in_new_combinations():
    tasks = [
        Task("b", f"{g}{i}", g, f"Did patient {i} take {drug} ({g})?", True,
             f"select 1 from {g} where p = {i} and drug = '{drug.replace(chr(39), chr(39) * 2)}'",
             {"value": {"patient_id": i, "drug_name": drug}})
        for g in ("rx", "ry")
        for i, drug in enumerate(("aspirin", "o'brine", "sodium 5%", "water"), 10)
    ]  # fmt: skip
    unanswerable = Task("b", "u", "u", "When is lunch?", False)
    mine, others = [*tasks[:4], *tasks[5:], unanswerable], [tasks[4]]
    got = agent_pool.questions(mine, others, seed=1, n=20, unanswerable=0.1)
    assert Counter(t.answerable for t in got) == {True: 18, False: 2}
    assert {t.task_id for t in mine} <= {t.task_id for t in got}
    forbidden = set(keys(tasks[4]))
    texts = [t.text for t in got if t.answerable]
    assert len(set(texts)) == len(texts)
    for task in got:
        assert not forbidden & set(keys(task))
        if task.answerable:
            drug, patient = task.meta["value"]["drug_name"], task.meta["value"]["patient_id"]
            assert task.text == f"Did patient {patient} take {drug} ({task.group})?"
            literal = drug.replace("'", "''")
            assert (
                task.gold
                == f"select 1 from {task.group} where p = {patient} and drug = '{literal}'"
            )
    assert got == agent_pool.questions(mine, others, seed=1, n=20, unanswerable=0.1)


def test_fewer_come_where_combinations_run_out_and_none_without_an_answer_is_refused():
    task = Task("b", "1", "g", "Patient 5?", True, "select 5", {"value": {"patient_id": 5}})
    assert agent_pool.questions([task], [], seed=1, n=50, unanswerable=0.5) == [task]
    with pytest.raises(UserError, match="no answerable question"):
        agent_pool.questions([], [], seed=1, n=5, unanswerable=0.0)


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")
def test_the_regrounded_questions_have_an_agent_pool_that_no_other_pool_meets():
    path = Path(str(DATA)) / "reground/mimic3_demo_questions.json.xz"
    benchmark = EhrsqlBenchmark(questions=str(path), database="none", agent_share=0.4)
    tasks = benchmark.tasks()
    manifest = draw_pools(benchmark, tasks)
    mine = [t for t in tasks if manifest.pool[t.task_id] == Pool.AGENT]
    rest = [t for t in tasks if manifest.pool[t.task_id] != Pool.AGENT]
    assert not {k for t in mine for k in keys(t)} & {k for t in rest for k in keys(t)}
    trained = benchmark.agent_questions(7, 4000, unanswerable=0.1)
    assert not {k for t in trained for k in keys(t)} & {k for t in rest for k in keys(t)}
    without = benchmark.withheld_groups()
    groups = {t.group for t in tasks}
    assert 0.13 < len(without) / len(groups) < 0.17
    assert not {t.group for t in (*mine, *trained)} & without
    pools = {manifest.pool[t.task_id] for t in rest if t.group in without}
    assert pools == {Pool.TRAIN, Pool.CALIBRATION, Pool.HELDOUT}
    size = Counter(t.group for t in tasks if t.group not in without)
    taken = Counter(t.group for t in mine)
    assert all(taken[g] <= 0.4 * n + 0.5 for g, n in size.items())
    assert 0.35 < sum(taken.values()) / sum(size.values()) <= 0.42
    assert choose(tasks, manifest.pool, None, 0) == rest  # never collected
