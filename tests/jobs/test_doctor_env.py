"""`sentinel doctor` for environments: a sound world passes, each broken promise is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from jobs import doctor_env
from jobs.__main__ import main
from sentinel.agent.react import Action
from sentinel.benchmarks.base import Step, Task
from sentinel.benchmarks.craft import CraftBenchmark
from sentinel.benchmarks.craft.environment import CraftEnvironment

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
