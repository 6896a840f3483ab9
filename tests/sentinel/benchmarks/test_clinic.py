import asyncio
import pickle
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from sentinel.agent.react import Action
from sentinel.benchmarks.clinic import ClinicBenchmark, questions, schema
from sentinel.benchmarks.clinic.benchmark import bind_clock
from sentinel.benchmarks.clinic.groups import normalise
from sentinel.benchmarks.clinic.templates import TEMPLATES
from sentinel.benchmarks.clinic.values import Sources
from sentinel.benchmarks.registry import load
from sentinel.errors import UserError
from sentinel.sql.clock import bind


@pytest.fixture(scope="module")
def big():
    benchmark = ClinicBenchmark(n_questions=8000)
    start = time.process_time()  # the machine may be shared
    benchmark.tasks()
    benchmark.seconds = time.process_time() - start
    return benchmark


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    benchmark = ClinicBenchmark()
    benchmark.prepare(tmp_path_factory.mktemp("cache"))
    yield benchmark
    benchmark.close()


def values_of(task):
    return task.meta["template"], tuple(task.meta["values"].items())


def share(tasks):
    return sum(not t.answerable for t in tasks) / len(tasks)


def by_pool(benchmark):
    pools = benchmark.pools()
    found = {}
    for task in benchmark.tasks():
        found.setdefault(pools[task.task_id], []).append(task)
    return found


def test_eight_thousand_in_seconds(big):
    assert big.seconds < 15
    tasks = big.tasks()
    assert len(tasks) == len({t.task_id for t in tasks}) == len({t.text for t in tasks}) == 8000
    assert share(tasks) == pytest.approx(0.06)


def test_gold_gives_a_real_value_on_an_unmodified_sqlite(big, demo):
    db = sqlite3.connect(f"{demo.database.as_uri()}?mode=ro", uri=True)
    real, answerable = 0, [t for t in big.tasks() if t.answerable]
    for task in answerable[::3]:
        rows = db.execute(bind(task.gold, schema.CLOCK)).fetchall()
        real += any(cell is not None for row in rows for cell in row)
    db.close()
    rate = real / len(answerable[::3])
    assert 0.85 <= rate < 1  # some empty results remain: empty is not unanswerable


def test_the_generator_binds_the_clock_as_the_sandbox_does(demo):
    for task in demo.tasks()[:400]:
        if task.answerable:
            assert bind_clock(task.gold) == bind(task.gold, schema.CLOCK)


@pytest.mark.parametrize(("n", "seed"), [(300, 1), (1200, 1), (1200, 2), (2000, 5), (8000, 1)])
def test_unanswerable_share_of_every_pool(big, demo, n, seed):
    if seed == 1 and n in (1200, 8000):
        benchmark = big if n == 8000 else demo
    else:
        benchmark = ClinicBenchmark(n_questions=n, seed=seed)
    pools = by_pool(benchmark)
    assert set(pools) == {"train", "calibration", "heldout"}
    for name, tasks in pools.items():
        assert abs(share(tasks) - 0.06) <= 0.01, name
        if name != "train":
            assert 0.2 <= len(tasks) / n < 0.23


def test_groups_never_leak_between_pools(big):
    pool_of_group = {}
    for pool, tasks in by_pool(big).items():
        for task in tasks:
            assert pool_of_group.setdefault(task.group, pool) == pool
    shape = {}
    for task in big.tasks():
        if task.answerable:
            assert shape.setdefault(task.gold, task.group) == task.group
    normal = {}
    for gold, group in list(shape.items())[::5]:
        assert normal.setdefault(normalise(gold), group) == group


def test_groups_are_even(demo):
    sizes = Counter(t.group for t in demo.tasks() if t.answerable)
    assert len(sizes) >= 100
    assert max(sizes.values()) <= 10
    topics = Counter(t.group for t in demo.tasks() if not t.answerable)
    assert len(topics) >= 25


@pytest.fixture(scope="module")
def agent(demo):
    return demo.agent_questions(77, 3000)


def test_agent_pool_is_disjoint_by_question(agent, big, demo):
    assert len(agent) == 3000
    other = ClinicBenchmark(seed=77, n_questions=1000).tasks()
    for tasks in (big.tasks(), demo.tasks(), other):
        assert not {t.text for t in agent} & {t.text for t in tasks}
        assert not {values_of(t) for t in agent} & {values_of(t) for t in tasks}
        assert not {t.gold for t in agent if t.gold} & {t.gold for t in tasks if t.gold}
        assert not {t.task_id for t in agent} & {t.task_id for t in tasks}
    assert len({t.text for t in agent}) == len(agent)
    assert share(agent) == pytest.approx(0.06)


def test_agent_has_seen_most_groups_but_not_the_withheld(agent, demo):
    withheld = demo.withheld_groups()
    groups = {t.group: t.answerable for t in demo.tasks()}
    assert 0.12 <= len(withheld & set(groups)) / len(groups) <= 0.18
    assert not withheld & {t.group for t in agent}
    assert {g for g in groups if g not in withheld} <= {t.group for t in agent}
    pools = demo.pools()
    where = Counter(
        (pools[t.task_id], t.answerable)
        for t in {t.group: t for t in demo.tasks()}.values()
        if t.group in withheld
    )
    assert set(where) == {
        (p, k) for p in ("train", "calibration", "heldout") for k in (True, False)
    }
    for pool, tasks in by_pool(demo).items():
        size = len({t.group for t in tasks})
        assert 0.08 <= (where[pool, True] + where[pool, False]) / size <= 0.22
    assert withheld == ClinicBenchmark(seed=5, n_questions=99).withheld_groups()
    assert withheld != ClinicBenchmark(hospital_seed=3).withheld_groups()


def test_more_unanswerable_for_training(demo):
    tasks = demo.agent_questions(3, 500, unanswerable=0.3)
    assert share(tasks) == pytest.approx(0.3)


def test_too_many_questions_are_refused(demo):
    db = sqlite3.connect(f"{demo.database.as_uri()}?mode=ro", uri=True)
    few = [t for t in TEMPLATES if t.id == "dx.code"]
    settings = {"side": questions.BENCHMARK, "seed": 1, "taken": set()}
    sources, checker = Sources(db), questions.Checker(db, bind_clock)
    with pytest.raises(UserError, match=r"only 15 different questions of 16"):
        questions.generate(sources, checker, few, n=16, **settings)
    db.close()


def test_same_seed_same_tasks_and_fingerprint(demo):
    first = ClinicBenchmark(n_questions=60)
    first.prepare(demo.database.parent)
    again = ClinicBenchmark(n_questions=60)  # without a file: in memory
    assert again.tasks() == first.tasks()
    assert again.fingerprint() == first.fingerprint()
    assert again.agent_questions(4, 60) == first.agent_questions(4, 60)
    assert first.agent_questions(5, 60) != first.agent_questions(4, 60)
    prints = {
        first.fingerprint(),
        demo.fingerprint(),
        ClinicBenchmark(seed=2, n_questions=60).fingerprint(),
        ClinicBenchmark(n_questions=60, schema_in_prompt=True).fingerprint(),
        ClinicBenchmark(n_questions=60, patients=361).fingerprint(),
    }
    assert len(prints) == 5


def test_prepare_builds_once_and_mends_a_cut_file(tmp_path):
    benchmark = ClinicBenchmark(n_questions=60)
    benchmark.prepare(tmp_path)
    path = benchmark.database
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    whole, stamp = path.read_bytes(), path.stat().st_mtime_ns
    ClinicBenchmark(n_questions=70).prepare(tmp_path)
    assert path.stat().st_mtime_ns == stamp
    path.write_bytes(whole[: len(whole) // 2])
    benchmark.prepare(tmp_path)
    assert path.read_bytes() == whole
    path.write_bytes(b"no database at all" * 1000)
    benchmark.prepare(tmp_path)
    assert path.read_bytes() == whole


def test_gold_runs_in_the_sandbox(demo):
    pool = demo.sandbox()
    for task in {t.group: t for t in demo.tasks() if t.answerable}.values():
        assert pool.query(task.gold).error is None, task.gold
    assert demo.sandbox() is pool


def test_environment_answers_its_gold(demo):
    pytest.importorskip("sentinel.benchmarks.sql_env")
    task = next(t for t in demo.tasks() if t.answerable)

    async def play():
        env = demo.make_env(task)
        try:
            first = await env.reset()
            return first, await env.step(Action("final", text=task.gold))
        finally:
            await env.close()

    first, step = asyncio.run(play())
    assert task.text in first
    assert step.done
    assert step.answer is not None


def test_sandbox_before_prepare():
    with pytest.raises(UserError, match="not built"):
        ClinicBenchmark(n_questions=60).sandbox()


def test_benchmark_travels_without_its_workers(demo):
    demo.sandbox()
    copy = pickle.loads(pickle.dumps(demo))
    assert copy.database == demo.database
    assert demo._sandbox.is_open
    assert not copy._sandbox.is_open
    assert copy.tasks() == demo.tasks()


def test_the_shipped_config_is_the_default(demo):
    path = Path(__file__).parents[3] / "configs" / "benchmarks" / "clinic.yaml"
    loaded = load(yaml.safe_load(path.read_text()))
    assert isinstance(loaded, ClinicBenchmark)
    assert loaded.tasks() == demo.tasks()


def test_prompts(demo):
    assert demo.max_turns == 8
    short = demo.system_prompt()
    assert short.count(". ") + 1 == 2
    assert "admissions" not in short
    full = ClinicBenchmark(schema_in_prompt=True).system_prompt()
    for table in schema.TABLES:
        assert table.name + "(" in full
    for word in ("FINAL_SQL:", "FINAL: null", "BEST_SO_FAR", schema.CLOCK, "cost.event_id ="):
        assert word in full


@pytest.mark.parametrize(
    "settings",
    [
        {"n_question": 5},
        {"n_questions": 10},
        {"n_questions": "1200"},
        {"n_questions": 10**9},
        {"seed": -1},
        {"seed": 1.5},
        {"patients": 10},
        {"hospital_seed": None},
        {"schema_in_prompt": "yes"},
        {"name": ""},
        {"sandbox_workers": 0},
    ],
)
def test_wrong_settings_are_user_errors(settings):
    with pytest.raises(UserError, match="clinic: "):
        ClinicBenchmark(**settings)
