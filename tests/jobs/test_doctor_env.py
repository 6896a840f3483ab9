"""`sentinel doctor` for environments: a sound world passes, each broken promise is found."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from made_alfworld import write_games
from made_textcraft import SHA256, write_recipes
from made_webshop import write_catalogue

from jobs import doctor_env
from jobs.__main__ import main
from sentinel.agent.react import Action
from sentinel.benchmarks.base import Step, Task
from sentinel.benchmarks.craft import CraftBenchmark
from sentinel.benchmarks.craft.environment import CraftEnvironment
from sentinel.benchmarks.registry import load

ROOT = Path(__file__).resolve().parents[2]


def states(benchmark: Any) -> dict[str, str]:
    return {what: state for state, what, _ in doctor_env.checks(benchmark)}


def test_the_crafting_world_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(ROOT / "configs" / "benchmarks" / "craft.yaml")
    assert main(["doctor", config]) == 0
    out = capsys.readouterr().out
    assert "460 tasks in 92 groups" in out
    assert "40 of 40 solved by the oracle" in out
    assert "15 sessions opened, 15 closed" in out
    assert out.rstrip().endswith("ready")


class Broken(CraftBenchmark):
    """A world whose environments are of the class under test."""

    env: type[CraftEnvironment] = CraftEnvironment

    def make_env(self, task: Task) -> CraftEnvironment:
        meta = task.meta
        return self.env(self.world.book, meta["goal"], meta["count"], task.text)


class Drifts(CraftEnvironment):
    begun = 0

    async def reset(self) -> str:
        Drifts.begun += 1
        return await super().reset() + f"\n({Drifts.begun})"


class ChangesTasks(CraftEnvironment):
    """A server that has another goal under an id than the one that was frozen."""

    async def reset(self) -> str:
        return (await super().reset()).replace("Goal: craft 1 ", "Goal: craft 2 ")


class DoneIsSuccess(CraftEnvironment):
    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        return Step(step.observation, step.status, step.done, success=True)


class NeverSucceeds(CraftEnvironment):
    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        return Step(step.observation, step.status, step.done, success=False)


class Shares(CraftEnvironment):
    shared: ClassVar[dict[str, int]] = {}

    async def step(self, action: Action) -> Step:
        self.inventory = dict(Shares.shared)
        step = await super().step(action)
        Shares.shared = dict(self.inventory)
        return Step(f"{step.observation} {sorted(Shares.shared.items())}", step.status, step.done,
                    success=step.success)  # fmt: skip


class Leaks(CraftEnvironment):
    async def close(self) -> None:
        raise RuntimeError("the server is gone")


@pytest.mark.parametrize(
    ("env", "found"),
    [
        (Drifts, "same start"),
        (ChangesTasks, "task as frozen"),
        (DoneIsSuccess, "scripted time-out"),
        (NeverSucceeds, "scripted success"),
        (Shares, "separate sessions"),
        (Leaks, "closed after aborts"),
    ],
)
def test_a_broken_promise_is_found(env: type[CraftEnvironment], found: str) -> None:
    class World(Broken):
        pass

    World.env = env
    assert states(World())[found] == "FAIL"
    assert set(states(Broken()).values()) == {"ok"}


def test_a_world_without_an_oracle_is_told_so() -> None:
    class Dark(CraftBenchmark):
        oracle = None  # type: ignore[assignment]

    assert states(Dark())["scripted success"] == "note"


def test_a_server_may_count_its_own_sessions() -> None:
    class Server(CraftBenchmark):
        def open_sessions(self) -> int:
            return 3

    assert states(Server())["closed after aborts"] == "FAIL"


def test_tasks_beyond_the_cap_are_counted_not_failed() -> None:
    class Short(CraftBenchmark):
        max_turns = 5

    class Shorter(CraftBenchmark):
        max_turns = 1

    found = {what: (state, said) for state, what, said in doctor_env.checks(Short())}
    assert found["scripted success"][0] == "ok"
    assert "more need more turns than the cap" in found["scripted success"][1]
    assert states(Shorter())["scripted success"] == "FAIL"


def test_textcraft_and_webshop_keep_their_promises(tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="the extra webshop is not installed")
    shop = load({"name": "webshop", **write_catalogue(tmp_path)})
    recipes = str(write_recipes(tmp_path / "recipes"))
    craft = load({"name": "textcraft", "recipes_path": recipes, "recipes_sha256": SHA256})
    for benchmark in (shop, craft):
        assert set(states(benchmark).values()) == {"ok"}


@pytest.mark.slow
def test_alfworld_keeps_its_promises(tmp_path: Path) -> None:
    pytest.importorskip("alfworld", reason="the extra alfworld is not installed")
    world = load({"name": "alfworld", "games_dir": str(write_games(tmp_path)), "n_tasks": 1})
    assert set(states(world).values()) == {"ok"}
    assert world.open_sessions() == 0


class Single(CraftEnvironment):
    """One session at a time; others wait for their place."""

    held = False
    mine = False

    async def reset(self) -> str:
        if Single.held:
            await asyncio.Event().wait()
        Single.held = self.mine = True
        return await super().reset()

    async def close(self) -> None:
        if self.mine:
            Single.held = self.mine = False


def test_a_second_session_that_never_begins_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class World(Broken):
        env = Single

    class Says(World):
        places = 1

    monkeypatch.setattr(doctor_env, "PLACE_SECONDS", 0.2)
    for world, state in ((World(), "FAIL"), (Says(), "note")):
        found = states(world)
        assert found.pop("separate sessions") == state
        assert set(found.values()) == {"ok"}
    assert load({"name": "alfworld", "games_dir": str(tmp_path), "processes": 1}).places == 1


def test_bad_worlds_are_named_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other recipes, a catalogue without attributes, games missing: one line each, exit code 2."""
    shop = write_catalogue(tmp_path)
    (tmp_path / "ins.json").write_text("{}")
    (tmp_path / "games").mkdir()
    recipes = str(write_recipes(tmp_path / "recipes"))
    for settings, said in (
        ({"kind": "textcraft", "recipes_path": recipes}, "another version of the recipes"),
        ({"kind": "webshop", **shop}, "holds no attributes of the"),
        ({"kind": "alfworld", "games_dir": str(tmp_path / "games")}, "no game.tw-pddl below"),
    ):
        config = tmp_path / f"{settings['kind']}.yaml"
        config.write_text(json.dumps(settings))
        assert main(["doctor", str(config)]) == 2
        failed = [line for line in capsys.readouterr().out.split("\n") if line.startswith("FAIL")]
        assert len(failed) == 1
        assert said in failed[0]
