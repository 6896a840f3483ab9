"""TextCraft over a small recipe folder of our own, and over the published one where it is there."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made_textcraft import SHA256, shapeless, write_recipes

from jobs.__main__ import main
from jobs.doctor_env import Script
from sentinel.agent.loop import run_task
from sentinel.agent.react import Action, format
from sentinel.benchmarks.base import CraftTrainable, DataError, Task
from sentinel.benchmarks.registry import load
from sentinel.benchmarks.textcraft import TextcraftBenchmark
from sentinel.benchmarks.textcraft.recipes import folder_hash, load_folder, read_files
from sentinel.errors import UserError

DATA = os.environ.get("SENTINEL_TEST_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")


def small(folder: Path, **settings: Any) -> TextcraftBenchmark:
    return TextcraftBenchmark(
        recipes_path=str(write_recipes(folder / "recipes")), recipes_sha256=SHA256, **settings
    )


def toys(folder: Path) -> TextcraftBenchmark:
    """The small folder with twelve toys of coal and stick: more commands than a listing holds."""
    more = {f"toy_{i}": shapeless(f"toy_{i}", 1, "coal", "stick") for i in range(12)}
    recipes = write_recipes(folder / "recipes", more)
    sha256 = folder_hash(read_files(recipes))
    return TextcraftBenchmark(recipes_path=str(recipes), recipes_sha256=sha256)


def published(**settings: Any) -> TextcraftBenchmark:
    path = Path(str(DATA)) / "textcraft" / "recipes-1.16.5.tar.xz"
    return TextcraftBenchmark(recipes_path=str(path), **settings)


def played(benchmark: TextcraftBenchmark, task: Any, commands: list[str]) -> Any:
    turns = [format(Action("act", text=c), benchmark.dialect) for c in commands]
    return asyncio.run(run_task(Script(turns), benchmark, task, agent="script"))


def test_the_filters_of_the_original(tmp_path: Path) -> None:
    book = small(tmp_path).recipe_book()
    commands = {r.command() for r in book.recipes}
    # alternatives: the first; a tag without makers is an item; equal ingredients are summed
    assert "craft 4 oak planks using 1 oak logs" in commands
    assert "craft 3 torch using 1 stick, 2 coal" in commands
    assert book.tags == {"planks": ("birch planks", "oak planks")}
    # left out: furnaces, a single block, a circle; what they name can still be got
    assert not {"coal", "gem", "gem block"} & set(book.makes)
    assert {"oak logs", "coal", "gem", "gem block"} <= book.items


def test_both_presets_as_published(tmp_path: Path) -> None:
    every, original = small(tmp_path), small(tmp_path, preset="adapt")
    depths = [t.meta["depth"] for t in every.tasks()]
    assert depths == sorted(depths)
    assert min(depths) == 1
    deep = [t.meta["depth"] for t in original.tasks()]
    assert deep == sorted(deep, reverse=True)
    assert min(deep) == 2
    same = {t.task_id: t.text for t in original.tasks()}
    assert same.items() < {t.task_id: t.text for t in every.tasks()}.items()
    assert every.fingerprint() != original.fingerprint()
    with pytest.raises(UserError, match="use one of: adapt, agentgym"):
        small(tmp_path, preset="hard")


def test_the_published_answers(tmp_path: Path) -> None:
    benchmark = small(tmp_path)
    task = next(t for t in benchmark.tasks() if t.task_id == "oak_planks")
    assert task.text.startswith("Crafting commands:\n")
    assert task.text.endswith("\n\nGoal: craft oak planks.")
    env = benchmark.make_env(task)

    async def answers(*commands: str) -> list[tuple[str, str, bool | None]]:
        await env.reset()
        steps = [await env.step(Action("act", text=c)) for c in commands]
        return [(s.observation, s.status, s.success) for s in steps]

    said = asyncio.run(
        answers("look", "get 1 oak planks", "craft 1 stick using 2 planks", "get 2 oak logs",
                "craft 9 stick using 2 oak logs", "inventory",
                "craft 4 oak planks using 1 oak logs")
    )  # fmt: skip
    assert said == [
        ("Could not execute look", "error", False),
        ("Could not find oak planks", "error", False),
        ("Could not find enough items to craft minecraft:stick", "error", False),
        ("Got 2 oak logs", "ok", False),
        ("Could not find a valid recipe for minecraft:stick", "error", False),
        ("Inventory: [oak logs] (2)", "ok", False),
        ("Crafted 4 minecraft:oak_planks", "ok", True),
    ]


def test_a_comma_needs_no_space_and_a_tag_takes_any_carrier(tmp_path: Path) -> None:
    benchmark = small(tmp_path)
    task = next(t for t in benchmark.tasks() if t.task_id == "torch")
    episode = played(
        benchmark, task,
        ["get 1 birch logs", "get 2 coal", "craft 4 birch planks using 1 birch logs",
         "craft 4 stick using 2 birch planks", "craft torch using 1 stick ,2 coal"],
    )  # fmt: skip
    assert (episode.end, episode.success, episode.turns) == ("answered", True, 5)


def test_the_oracle_wins_and_a_time_out_fails(tmp_path: Path) -> None:
    benchmark = small(tmp_path)
    for task in benchmark.tasks():
        assert len(benchmark.oracle(task)) == task.meta["steps"]
        assert played(benchmark, task, benchmark.oracle(task)).success is True
    waits = played(small(tmp_path, max_turns=3), task, ["inventory"])
    assert (waits.end, waits.turns, waits.success) == ("cap", 3, False)


def test_frozen_tasks_are_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "made" / "tasks.json"
    fresh, filed = small(tmp_path), small(tmp_path, tasks_file=str(path))
    with pytest.raises(DataError, match=r"not frozen yet.*sentinel freeze"):
        filed.prepare(tmp_path)
    config = tmp_path / "textcraft.yaml"
    config.write_text(
        f"kind: textcraft\nrecipes_path: recipes\nrecipes_sha256: {SHA256}\n"
        "tasks_file: made/tasks.json\n"
    )
    assert main(["freeze", str(config)]) == 0
    assert filed.tasks() == fresh.tasks()
    assert filed.fingerprint() == fresh.fingerprint()
    found = json.loads(path.read_text())
    assert found["recipes_sha256"] == SHA256
    row = found["tasks"]["torch"]
    assert row.keys() == {"goal", "commands", "depth", "steps"}
    assert main(["freeze", str(config), "--out", str(tmp_path / "again.json")]) == 0
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    with pytest.raises(UserError, match="no file to freeze"):
        fresh.freeze()


def test_a_task_file_of_other_recipes_or_changed_is_refused(tmp_path: Path) -> None:
    path = small(tmp_path).freeze(tmp_path / "tasks.json")
    text = path.read_text()
    for old, new, said in (
        ('"depth": 1', '"depth": 2', "changed after it was frozen"),
        ("{", "", "cannot be read"),
        ('"format": 1', '"format": 9', "has format 9"),
    ):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(DataError, match=said):
            small(tmp_path, tasks_file=str(path)).tasks()
    path.write_text(text)
    for settings, said in (({"preset": "adapt"}, "preset agentgym"), ({"seed": 4}, "seed 0")):
        with pytest.raises(DataError, match=said):
            small(tmp_path, tasks_file=str(path), **settings).tasks()
    write_recipes(tmp_path / "other", {"lamp": {"type": "minecraft:crafting_shapeless",
        "ingredients": [{"item": "minecraft:coal"}], "result": "minecraft:lamp"}})  # fmt: skip
    sha = folder_hash(read_files(tmp_path / "other"))
    other = TextcraftBenchmark(
        recipes_path=str(tmp_path / "other"), recipes_sha256=sha, tasks_file=str(path)
    )
    with pytest.raises(DataError, match="was frozen from recipes with hash"):
        other.tasks()


def test_recipes_of_another_version_are_named_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_recipes(tmp_path / "recipes")
    with pytest.raises(DataError, match=r"another version of the recipes \(10 files") as caught:
        TextcraftBenchmark(recipes_path=str(folder)).prepare(tmp_path)
    assert f"set recipes_sha256: {SHA256}" in str(caught.value)
    config = tmp_path / "run.yaml"
    config.write_text(
        "benchmarks: [{name: textcraft, recipes_path: recipes}]\nagents: [nano-craft-mason]\n"
    )
    assert main(["run", str(config), "--run-dir", str(tmp_path / "run"), "--on", "debug"]) == 2
    assert "another version of the recipes" in capsys.readouterr().err
    # a form that 1.16 does not use, asked for on purpose
    late = write_recipes(tmp_path / "late", {"lamp": {"type": "minecraft:crafting_shapeless",
        "ingredients": ["minecraft:coal"], "result": {"id": "minecraft:lamp"}}})  # fmt: skip
    with pytest.raises(DataError, match=r"lamp\.json has a form that Minecraft 1\.16 does not use"):
        load_folder(late, folder_hash(read_files(late)))


def test_folders_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = write_recipes(tmp_path / "broken")
    (broken / "torch.json").write_text("{")
    (tmp_path / "no.tar.xz").write_bytes(b"not a tar")
    for name, said in (
        ("absent", "cannot read"),
        ("empty", "holds no recipe"),
        ("broken", r"torch\.json in .* is damaged"),
        ("no.tar.xz", "cannot read"),
    ):
        with pytest.raises(DataError, match=said):
            load_folder(tmp_path / name)


def test_an_archive_is_its_folder(tmp_path: Path) -> None:
    folder = write_recipes(tmp_path / "recipes")
    archive = tmp_path / "r.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(folder, "recipes")
    assert load_folder(archive, SHA256).book == load_folder(folder, SHA256).book
    assert load_folder(tmp_path, SHA256).book == load_folder(folder, SHA256).book


def test_goals_follow_no_directory_order_and_no_hash_seed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, random, sys\n"
        "plain = pathlib.Path.iterdir\n"
        "def shuffled(self):\n"
        "    found = sorted(plain(self)); random.Random(int(sys.argv[2])).shuffle(found)\n"
        "    return iter(found)\n"
        "pathlib.Path.iterdir = shuffled\n"
        "from sentinel.benchmarks.textcraft import TextcraftBenchmark as B\n"
        "b = B(recipes_path=sys.argv[1], recipes_sha256=sys.argv[3])\n"
        "print([(t.task_id, t.text, b.oracle(t)) for t in b.tasks()], b.fingerprint())\n"
        "print([t.text for t in b.agent_questions(1, 20)])\n"
    )
    benchmark = toys(tmp_path)
    folder, sha256 = str(benchmark.recipes_path), benchmark.recipes_sha256
    outs = {
        subprocess.run(
            [sys.executable, "-c", program, folder, seed, sha256],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "77", "4242")
    }
    assert len(outs) == 1
    assert b"Goal: craft torch." in outs.pop()


def test_ten_thousand_resets_change_nothing_and_grow_nothing(tmp_path: Path) -> None:
    benchmark = small(tmp_path)
    tasks, book, before = benchmark.tasks(), benchmark.recipe_book(), benchmark.fingerprint()

    async def reset(times: int) -> set[str]:
        seen = set()
        for i in range(times):
            env = benchmark.make_env(tasks[i % len(tasks)])
            seen.add(await env.reset())
            if i % 10 == 0:
                await env.step(Action("act", text="get 1 oak logs"))
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
    assert len(seen) == len(tasks)
    assert benchmark.recipe_book() is book
    assert (benchmark.fingerprint(), len(book.recipes)) == (before, 7)


def test_the_agent_pool_shares_no_task_with_the_others(tmp_path: Path) -> None:
    benchmark = toys(tmp_path)
    assert isinstance(benchmark, CraftTrainable)
    agent = benchmark.agent_questions(7, 200)
    assert agent[:5] == benchmark.agent_questions(7, 5)

    def asked(tasks: Sequence[Task]) -> set[tuple[str, frozenset[str]]]:
        return {(t.group, frozenset(t.meta["commands"])) for t in tasks}

    assert not asked(agent) & asked(benchmark.tasks())  # a frozen task in another order is that one
    assert len({t.text for t in agent}) == 200
    assert not {t.group for t in agent} & benchmark.withheld_groups()
    with pytest.raises(UserError, match="no unanswerable"):
        benchmark.agent_questions(7, 5, unanswerable=0.1)
    lamp = tmp_path / "lamp"
    lamp.mkdir()
    (lamp / "lamp.json").write_text(json.dumps(shapeless("lamp", 1, "coal")))
    one = TextcraftBenchmark(recipes_path=str(lamp), recipes_sha256=folder_hash(read_files(lamp)))
    with pytest.raises(UserError, match="fewer than 5"):
        one.agent_questions(7, 5)


@pytest.mark.data
@needs_data
def test_no_agent_task_is_a_frozen_one_in_another_order() -> None:
    benchmark = published()
    frozen = {(t.group, frozenset(t.meta["commands"])) for t in benchmark.tasks()}
    agent = benchmark.agent_questions(5, 2000)
    assert not frozen & {(t.group, frozenset(t.meta["commands"])) for t in agent}
    assert {t.meta["depth"] for t in agent} == {1, 2, 3, 4}


def test_settings_are_checked(tmp_path: Path) -> None:
    found = load({"name": "textcraft", "recipes_path": str(tmp_path)})
    assert "20 replies" in found.system_prompt()
    for wrong in ({"max_turns": 0}, {"max_turns": True}, {"seed": "x"}):
        with pytest.raises(UserError, match="textcraft"):
            small(tmp_path, **wrong)
    with pytest.raises(UserError, match="missing recipes_path"):
        load({"name": "textcraft"})


@pytest.mark.data
@needs_data
def test_the_oracle_solves_every_goal_of_the_published_folder() -> None:
    benchmark = published(max_turns=60)
    assert (benchmark.folder.n_files, len(benchmark.recipe_book().recipes)) == (860, 613)
    tasks = benchmark.tasks()
    assert len(tasks) == 544
    solved = 0
    for task in tasks:
        episode = played(benchmark, task, benchmark.oracle(task))
        solved += (episode.end, episode.success) == ("answered", True)
    assert solved == 544
    steps = sorted(t.meta["steps"] for t in tasks)
    assert (steps[272], sum(s > 20 for s in steps)) == (5, 16)
    assert len(published(preset="adapt").tasks()) == 419
    withheld = benchmark.withheld_groups()
    assert 0.12 < len(withheld) / 544 < 0.16


@pytest.mark.data
@needs_data
def test_a_listing_is_enough_to_solve_its_goal() -> None:
    """Every command of the plan is a `get` or one use of a listed recipe."""
    benchmark = published()
    for task in benchmark.tasks():
        commands = task.meta["commands"]
        outputs = {c.split(" using ")[0].split(" ", 2)[2] for c in commands}
        plan = benchmark.oracle(task)
        made = {c.split(" using ")[0].split(" ", 2)[2] for c in plan if c.startswith("craft")}
        assert made <= outputs
        assert len(set(commands)) == len(commands)
