"""ALFWorld with small games of our own: the expert wins, a random policy runs into the cap."""

from __future__ import annotations

import asyncio
import json
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from made_alfworld import write_game, write_games

from jobs.doctor_env import Script
from sentinel.agent.loop import run_task
from sentinel.agent.react import Action, format
from sentinel.benchmarks.alfworld import AlfworldBenchmark
from sentinel.benchmarks.alfworld.session import WORKER, Session, SessionLost
from sentinel.benchmarks.alfworld.worker import Game, ThreadMisuse
from sentinel.benchmarks.base import DataError
from sentinel.errors import UserError

pytestmark = pytest.mark.skipif(
    find_spec("alfworld") is None, reason="the extra alfworld is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_games(tmp_path_factory.mktemp("games"))


def world(folder: Path, **settings: Any) -> AlfworldBenchmark:
    return AlfworldBenchmark(games_dir=str(folder), **settings)


def played(benchmark: AlfworldBenchmark, task: Any, commands: list[str]) -> Any:
    turns = [format(Action("act", text=c), benchmark.dialect) for c in commands]
    return asyncio.run(run_task(Script(turns), benchmark, task, agent="script"))


def test_games_are_tasks_named_by_their_folder(folder: Path) -> None:
    tasks = world(folder).tasks()
    assert [t.task_id for t in tasks] == sorted(t.task_id for t in tasks)
    assert tasks[0].task_id == "put-book-cabinet/trial_2"
    assert (tasks[0].group, tasks[0].text) == ("put-book-cabinet", "put a book in the cabinet")
    assert tasks[0].meta["type"] == "put"
    some = world(folder, n_tasks=2)
    assert {t.task_id for t in some.tasks()} < {t.task_id for t in tasks}
    assert some.fingerprint() != world(folder).fingerprint()


@pytest.mark.slow
def test_the_expert_wins_and_the_versions_are_recorded(folder: Path) -> None:
    benchmark = world(folder)
    task = benchmark.tasks()[0]
    episode = played(benchmark, task, benchmark.oracle(task))
    assert (episode.end, episode.success) == ("answered", True)
    assert episode.turns == len(benchmark.oracle(task)) == 5
    assert episode.environment.startswith("alfworld 0.4")
    assert "textworld" in episode.environment
    assert benchmark.open_sessions() == 0
    left = [" ".join(p.cmdline()) for p in psutil.Process().children()]
    assert not [line for line in left if str(WORKER) in line]


@pytest.mark.slow
def test_a_random_policy_times_out_and_that_is_a_failure(folder: Path) -> None:
    benchmark = world(folder, max_turns=8)
    env = benchmark.make_env(benchmark.tasks()[0])
    rng = np.random.default_rng(3)

    async def wander() -> list[Any]:
        await env.reset()
        try:
            return [
                await env.step(Action("act", text=str(rng.choice(list(env.moves())))))
                for _ in range(benchmark.max_turns)
            ]
        finally:
            await env.close()

    steps = asyncio.run(wander())
    assert {s.status for s in steps} == {"ok"}
    assert not any(s.success or s.done for s in steps)
    lost = played(benchmark, benchmark.tasks()[0], ["dance"])
    assert (lost.end, lost.turns, lost.success) == ("cap", 8, False)
    assert {s.observation for s in lost.steps} == {"Nothing happens."}
    assert {s.status for s in lost.steps} == {"error"}


@pytest.mark.slow
def test_games_side_by_side_do_not_meet_and_wait_for_a_place(folder: Path) -> None:
    benchmark = world(folder, processes=1)
    tasks = benchmark.tasks()

    async def visit(task: Any) -> tuple[int | None, str, int]:
        env = benchmark.make_env(task)
        try:
            await env.reset()
            step = await env.step(Action("act", text="go to table 1"))
            return env.pid, step.observation, benchmark.open_sessions()
        finally:
            await env.close()

    async def both() -> list[tuple[int | None, str, int]]:
        return list(await asyncio.gather(visit(tasks[0]), visit(tasks[1])))

    (first, seen, _), (second, other, _) = found = asyncio.run(both())
    assert first != second
    assert all(live == 1 for _, _, live in found)
    assert ("book 1" in seen, "book 1" in other) == (True, False)


@pytest.mark.slow
def test_thread_misuse_is_refused(folder: Path) -> None:
    """A session by another thread, a second request at once, and in the worker itself."""
    benchmark = world(folder)
    game = next(iter(benchmark.games.values()))

    def elsewhere(session: Session, caught: list[BaseException]) -> None:
        try:
            asyncio.run(session.ask({"do": "reset"}))
        except SessionLost as error:
            caught.append(error)

    async def misuse() -> list[BaseException]:
        session = Session(game.path, game.sha256)
        caught: list[BaseException] = []
        try:
            await session.open()
            thread = threading.Thread(target=elsewhere, args=(session, caught))
            thread.start()
            thread.join()
            asked = [session.ask({"do": "reset"}) for _ in range(2)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            caught += [f for f in found if isinstance(f, BaseException)]
        finally:
            await session.close()
        return caught

    other, second = asyncio.run(misuse())
    assert "belongs to the thread that opened it" in str(other)
    assert "one request at a time" in str(second)


def test_a_worker_holds_one_game_of_one_thread(folder: Path) -> None:
    game = next(iter(world(folder).games.values()))
    one = Game.__new__(Game)  # without TextWorld: the guard comes before it is loaded
    one._thread = -1
    with pytest.raises(ThreadMisuse, match="another thread"):
        one.step("look")
    Game._open = one
    try:
        with pytest.raises(ThreadMisuse, match="has a game already"):
            Game(str(game.path), game.sha256)
    finally:
        Game._open = None
    with pytest.raises(ValueError, match="was changed"):
        Game(str(game.path), "0" * 64)
    assert Game._open is None


def test_games_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no game\.tw-pddl below"):
        world(tmp_path).prepare(tmp_path)
    path = write_game(tmp_path / "a" / "t")
    text = path.read_text()
    for wrong, said in (
        ("{", "is damaged"),
        (text.replace("move {o} to {r}", "put {o} in {r}"), "version before 0.4"),
        (json.dumps({**json.loads(text), "pddl_problem": ""}), "lacks pddl_problem"),
        (json.dumps({**json.loads(text), "solvable": False}), "marked as unsolvable"),
    ):
        path.write_text(wrong)
        with pytest.raises(DataError, match=said):
            world(tmp_path).tasks()
    path.write_text(text)
    with pytest.raises(DataError, match="1 games, not the 120"):
        world(tmp_path, n_tasks=120).tasks()
    for name in ("n_tasks", "max_turns", "processes"):
        with pytest.raises(UserError, match=name):
            world(tmp_path, **{name: 0})


def test_a_frozen_list_refuses_missing_and_changed_games(tmp_path: Path) -> None:
    root = write_games(tmp_path / "games")
    listed = tmp_path / "made" / "tasks.json"
    filed = world(root, tasks_file=str(listed), n_tasks=3)
    with pytest.raises(DataError, match=r"not frozen yet.*sentinel freeze"):
        filed.tasks()
    assert filed.freeze() == listed
    assert [t.task_id for t in filed.tasks()] == [t.task_id for t in world(root, n_tasks=3).tasks()]
    for asked in ({"n_tasks": 2}, {"n_tasks": 3, "seed": 9}):
        with pytest.raises(DataError, match=r"holds 3 games of seed 0, asked for are n_tasks"):
            world(root, tasks_file=str(listed), **asked).tasks()
    first = next(iter(filed.games.values()))
    write_game(first.path.parent, "pan", "table", "fridge")
    with pytest.raises(DataError, match="changed under their id"):
        world(root, tasks_file=str(listed)).prepare(tmp_path)
    first.path.unlink()
    with pytest.raises(DataError, match="1 of 3 games are missing"):
        world(root, tasks_file=str(listed)).prepare(tmp_path)


def test_a_game_that_changes_after_it_was_listed_ends_the_episode(tmp_path: Path) -> None:
    benchmark = world(write_games(tmp_path))
    task = benchmark.tasks()[0]
    write_game(benchmark.games[task.task_id].path.parent, "pan", "table", "fridge")
    episode = played(benchmark, task, ["look"])
    assert episode.end == "env_error"
    assert "no longer the task of this id" in episode.error
    assert episode.success is None
