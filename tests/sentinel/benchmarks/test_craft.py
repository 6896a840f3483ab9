"""The embedded crafting world: frozen tasks, pools without leaks, episodes of the real loop."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from jobs.doctor_env import Script
from sentinel.agent.loop import run_task
from sentinel.agent.react import Action, format, parse
from sentinel.benchmarks.base import CraftTrainable, DataError, Task
from sentinel.benchmarks.craft import CraftBenchmark
from sentinel.benchmarks.craft.frozen import FILE, load_world, make_world, write_world
from sentinel.benchmarks.registry import load
from sentinel.episodes import Episode, render
from sentinel.errors import UserError
from sentinel.task_table import draw_pools

CRAFT = CraftBenchmark()
TASKS = CRAFT.tasks()


def played(task: Task, commands: list[str]) -> Episode:
    turns = [format(Action("act", text=c), CRAFT.dialect) for c in commands]
    return asyncio.run(run_task(Script(turns), CRAFT, task, agent="script"))


def test_the_shipped_file_is_what_the_generator_makes(tmp_path: Path) -> None:
    made = make_world()
    assert made.sha256 == load_world().sha256
    write_world(made, tmp_path / "world.json")
    assert (tmp_path / "world.json").read_bytes() == FILE.read_bytes()


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    for i, (old, new) in enumerate((('"count": 1', '"count": 2'), ("oak log", "oak bog"))):
        text = FILE.read_text().replace(old, new, 1)
        assert text != FILE.read_text()
        path = tmp_path / f"{i}.json"
        path.write_text(text)
        with pytest.raises(DataError, match="changed after it was frozen"):
            CraftBenchmark(file=str(path)).tasks()
    (tmp_path / "cut.json").write_text(FILE.read_text()[:-500])
    for name in ("cut.json", "absent.json"):
        with pytest.raises(DataError, match="cannot be read"):
            CraftBenchmark(file=str(tmp_path / name)).prepare(tmp_path)


def test_tasks_differ_and_every_group_has_several() -> None:
    assert len({t.text for t in TASKS}) == len(TASKS) >= 400
    of_group = defaultdict(list)
    for task in TASKS:
        of_group[task.group].append(task)
        assert task.group == task.meta["goal"]
        assert task.answerable is None
        assert task.text.startswith(f"Goal: craft {task.meta['count']} {task.group}.\n")
    assert min(map(len, of_group.values())) >= 4
    assert {t.meta["depth"] for t in TASKS} == {1, 2, 3, 4}
    assert len({t.meta["count"] for t in TASKS}) > 1
    json.loads(TASKS[0].meta_json())


def test_where_the_goals_recipe_stands_says_nothing_about_the_task() -> None:
    first = np.array([f" {t.group} using " in t.meta["commands"][0] for t in TASKS])
    assert 0.44 < first.mean() < 0.56
    for name in ("depth", "steps", "count"):
        value = np.array([t.meta[name] for t in TASKS], dtype=float)
        assert abs(np.corrcoef(first, value)[0, 1]) < 0.12


def test_the_oracle_solves_every_task_within_the_cap() -> None:
    for task in TASKS:
        assert len(CRAFT.oracle(task)) == task.meta["steps"] <= CRAFT.max_turns
        commands = CRAFT.oracle(task, backward=True)  # what is left over may save a step or cost it
        episode = played(task, commands)
        assert (episode.end, episode.success, episode.turns) == ("answered", True, len(commands))


def test_success_is_the_environments_own_value_and_ends_the_episode() -> None:
    task = next(t for t in TASKS if t.meta["count"] == 2)
    commands = CRAFT.oracle(task)
    episode = played(task, [*commands, "inventory"])
    assert episode.turns == len(commands)
    assert episode.action == commands[-1]
    text = render(task.text, episode.steps, episode.turns, episode, CRAFT.dialect)
    assert f"STEP {episode.turns} ACTION: {commands[-1]}\n" in text
    assert text.endswith(f"OBSERVATION: {episode.steps[-1].observation}")
    # one of two is not enough: the cap comes, and it is a failure
    once = commands.index(commands[-1]) + 1
    short = played(task, [*commands[:once], "inventory"])
    assert (short.end, short.success, short.turns) == ("cap", False, 20)


def test_nonsense_and_silence_are_failures_with_a_verdict() -> None:
    nonsense = played(TASKS[0], ["wave at the wall"])
    assert (nonsense.end, nonsense.success) == ("cap", False)
    assert all(s.status == "error" and "error" in s.observation for s in nonsense.steps)
    mute = asyncio.run(run_task(Script(["..."]), CRAFT, TASKS[0], agent="script"))
    assert {s.kind for s in mute.steps} == {"malformed"}
    assert (mute.end, mute.success) == ("cap", False)


def test_the_dialect_has_actions_only() -> None:
    action = Action("act", thought="logs first", text="get 2 oak log")
    assert parse(format(action, CRAFT.dialect), CRAFT.dialect) == action
    assert parse("FINAL_SQL: select 1", CRAFT.dialect).kind == "malformed"
    assert parse("get 2 oak log", CRAFT.dialect).kind == "malformed"
    cut = parse("ACTION: craft 1 oak", CRAFT.dialect, "length")
    assert cut.kind == "malformed"


def test_ten_thousand_resets_change_nothing_and_grow_nothing() -> None:
    book, before = CRAFT.world.book, CRAFT.fingerprint()

    async def reset(times: int) -> set[str]:
        seen = set()
        for i in range(times):
            task = TASKS[i % 7]
            env = CRAFT.make_env(task)
            seen.add(await env.reset())
            if i % 10 == 0:
                await env.step(Action("act", text=task.meta["commands"][0]))
                await env.step(Action("act", text="get 1 oak log"))
            await env.close()
        return seen

    asyncio.run(reset(200))
    gc.collect()
    tracemalloc.start()
    try:
        seen = asyncio.run(reset(10_000))
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 100_000  # ten bytes per reset
    assert len(seen) == 7
    assert CRAFT.fingerprint() == before
    assert CRAFT.world.book is book
    assert make_world().book == book


def test_a_random_policy_rarely_wins() -> None:
    # Uniform over the listed commands and over what they need; the figure is for the note.
    rng = np.random.default_rng(0)
    wins = 0
    for task in TASKS:
        parts = {p for c in task.meta["commands"] for p in c.split(" using ")[1].split(", ")}
        known = CRAFT.world.book
        gets = sorted(
            f"get {p}" for p in parts if p.split(" ", 1)[1] in known.items - set(known.makes)
        )
        carriers = {tag: items[0] for tag, items in known.tags.items()}
        crafts = [_with_items(c, carriers) for c in task.meta["commands"]]
        moves = [*gets, *crafts]
        commands = [moves[i] for i in rng.integers(len(moves), size=CRAFT.max_turns)]
        wins += bool(played(task, commands).success)
    assert 0.02 < wins / len(TASKS) < 0.3


def _with_items(command: str, carriers: dict[str, str]) -> str:
    head, parts = command.split(" using ")
    words = [p.split(" ", 1) for p in parts.split(", ")]
    return f"{head} using " + ", ".join(f"{n} {carriers.get(name, name)}" for n, name in words)


def test_pools_are_whole_groups_and_withheld_groups_are_in_each() -> None:
    pools = draw_pools(CRAFT, TASKS).pool
    where = defaultdict(set)
    for task in TASKS:
        where[task.group].add(pools[task.task_id])
    assert all(len(found) == 1 for found in where.values())
    withheld = CRAFT.withheld_groups()
    assert 0.12 < len(withheld) / len(where) < 0.17
    assert set().union(*(where[g] for g in withheld)) == set(pools.values())


def test_the_agent_pool_shares_no_task_with_the_others() -> None:
    assert isinstance(CRAFT, CraftTrainable)
    agent = CRAFT.agent_questions(7, 1000)
    assert agent[:60] == CRAFT.agent_questions(7, 60)
    assert len({t.text for t in agent}) == len({t.task_id for t in agent}) == 1000
    assert not {t.text for t in agent} & {t.text for t in TASKS}
    assert not {t.group for t in agent} & CRAFT.withheld_groups()
    assert {t.group for t in agent} == {t.group for t in TASKS} - CRAFT.withheld_groups()
    with pytest.raises(UserError, match="no unanswerable"):
        CRAFT.agent_questions(7, 10, unanswerable=0.1)
    with pytest.raises(UserError, match="ask for"):
        CRAFT.agent_questions(7, 0)


def test_settings_are_checked_and_fingerprints_follow_them() -> None:
    assert load({"name": "craft"}).fingerprint() == CRAFT.fingerprint()
    few = CraftBenchmark(n_tasks=10)
    assert len(few.tasks()) == 10
    assert few.fingerprint() != CRAFT.fingerprint()
    for wrong in ({"n_tasks": 0}, {"n_tasks": True}, {"name": ""}, {"colour": 1}):
        with pytest.raises(UserError, match="craft"):
            CraftBenchmark(**wrong)
    assert "20 replies" in CRAFT.system_prompt()
