"""`engine: policy`: agents without a model, for floors and ceilings of an environment.

`model: oracle` says the benchmark's own plan (`oracle(task)`), command by command, then repeats its
last one. `model: random` says any of the commands that the world lists at the moment (`moves()`),
seeded by episode and turn. `oracle:0.9` follows the plan in nine turns of ten and leaves a command
out for a random one in the others. None has log-probabilities or hidden states: of the cascade's
scorers only `surface`, `heads`, `tfidf`, `task` and `random` can read them. Words count as tokens,
so that an episode has a cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from sentinel.agent.react import Action
from sentinel.agent.react import format as format_action
from sentinel.benchmarks.base import Benchmark, Environment, Task
from sentinel.engine import Generation, Request
from sentinel.errors import UserError

POLICIES = ("oracle", "random", "oracle:SHARE")


class PolicyEngine:
    """One policy for all episodes of a replica.

    Raises UserError for a benchmark that offers no plan, or whose world lists no commands.
    """

    context_window = 0

    def __init__(self, name: str, policy: str) -> None:
        self.name, (self.policy, self.share) = name, _read(policy)
        self.revision = f"policy {policy}"
        self._worlds: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._tasks: dict[str, tuple[Benchmark, Task]] = {}

    def watch(self, episode: str, benchmark: Benchmark, task: Task, env: Environment) -> None:
        """An episode begins in this world."""
        for gone in [e for e in self._tasks if e not in self._worlds]:
            del self._tasks[gone]
        self._worlds[episode], self._tasks[episode] = env, (benchmark, task)

    async def generate(self, request: Request) -> Generation:
        """The next command, as a turn of the benchmark's dialect."""
        episode, _, number = request.request_id.rpartition("/")
        if episode not in self._tasks:
            raise UserError(
                f"engine policy: episode {episode} has no world", "policies run in collections only"
            )
        benchmark, task = self._tasks[episode]
        command = self._command(benchmark, task, self._worlds[episode], int(number), request.seed)
        text = format_action(Action("act", text=command), benchmark.dialect)
        words = sum(len(m.content.split()) for m in request.messages)
        return Generation(text, None, None, None, None, "stop", words, len(text.split()))

    def _command(self, benchmark: Benchmark, task: Task, env: Any, number: int, seed: int) -> str:
        rng = np.random.default_rng(seed)
        if self.policy == "oracle" and (self.share == 1.0 or rng.random() < self.share):
            plan = getattr(benchmark, "oracle", None)
            commands = None if plan is None else plan(task)
            if not commands:
                raise _unable(benchmark, "has no plan for its tasks", "random")
            return str(commands[min(number, len(commands)) - 1])
        listed = getattr(env, "moves", None)
        moves = [] if listed is None else list(listed())
        if not moves:
            raise _unable(benchmark, "lists no commands to choose from", "oracle")
        return str(moves[int(rng.integers(len(moves)))])

    async def close(self) -> None:
        """Nothing to free."""


def _unable(benchmark: Benchmark, why: str, other: str) -> UserError:
    return UserError(
        f"engine policy: benchmark {benchmark.name} {why}", f"use model: {other}, or another agent"
    )


def _read(policy: str) -> tuple[str, float]:
    """`oracle`, 1.0 of `oracle`; raises ValueError for what is no policy."""
    name, colon, share = policy.partition(":")
    found = float(share) if colon else 1.0
    if name not in POLICIES or (colon and name != "oracle") or not 0 < found <= 1:
        raise ValueError(policy)
    return name, found


def check(agent: Mapping[str, Any]) -> None:
    """Raise UserError for a policy that there is not."""
    try:
        _read(str(agent.get("model")))
    except ValueError:
        raise UserError(
            f"agent {agent.get('name')}: no policy named {agent.get('model')!r}",
            f"set model to one of: {', '.join(POLICIES)}",
        ) from None


def make(agent: Mapping[str, Any]) -> PolicyEngine:
    """The policy of an agent config."""
    check(agent)
    return PolicyEngine(str(agent["name"]), str(agent["model"]))
