"""`AlfworldBenchmark`: the user's ALFWorld games as a set of tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from sentinel.agent.react import Dialect
from sentinel.benchmarks.alfworld import games as files
from sentinel.benchmarks.alfworld.environment import AlfworldEnvironment, Gate
from sentinel.benchmarks.alfworld.session import SECONDS, plan
from sentinel.benchmarks.base import Environment, Task, file_to_freeze
from sentinel.errors import UserError

RULES_VERSION = 1
"""Raised whenever the way a game is played changes."""
ROUNDS = 20

PROMPT = """\
You are in a house that you see as text. The first message describes a room and names a task. Each \
of your replies is one short thought and exactly one action, each on its own line:

THOUGHT: <why this action>
ACTION: <one command>

COMMANDS
- go to <place>, open <place>, close <place>, examine <place or object>
- take <object> from <place>, move <object> to <place>
- heat, cool or clean <object> with <place>: the microwave, the fridge or the sink basin.
- use <object>: switch a lamp. slice <object> with <object>. look. inventory.

RULES
- Name places and objects with their numbers, exactly as the house does: apple 1, cabinet 3.
- You act on a place after going to it, and hold one object at most.
- "Nothing happens." means that the command was not possible.
- Never write an OBSERVATION yourself; it comes in the next message.
- You have {max_turns} replies in all."""


class AlfworldBenchmark:
    """Games below `games_dir`; the group of a task is the folder of its goal's trials.

    `n_tasks` games are taken by `seed` (None: all). `tasks_file` is a frozen list of them
    (`sentinel freeze`); None chooses anew. At most `processes` games run at once in a process, each
    in one of its own (about 80 MB); `seconds` is the time for one answer of a game. Wrong values
    raise UserError.
    """

    dialect = Dialect(act="ACTION", final=None, abstain=None)
    slow_start = True
    """A session costs seconds: `doctor` looks at fewer."""

    def __init__(
        self,
        name: str = "alfworld",
        *,
        games_dir: str,
        tasks_file: str | None = None,
        n_tasks: int | None = None,
        seed: int = 0,
        max_turns: int = ROUNDS,
        processes: int = 8,
        seconds: float = SECONDS,
    ) -> None:
        for what, value in (
            ("n_tasks", n_tasks),
            ("max_turns", max_turns),
            ("processes", processes),
        ):
            if value is not None and (isinstance(value, bool) or value < 1):
                raise UserError(f"{name}: {what} is {value!r}", f"set {what} to at least 1")
        if seconds <= 0:
            raise UserError(f"{name}: seconds is {seconds!r}", "set it above 0")
        self.name, self.seed, self.n_tasks = name, seed, n_tasks
        self.max_turns, self.seconds = max_turns, seconds
        self.games_dir = Path(games_dir).absolute()
        self.tasks_file = None if tasks_file is None else Path(tasks_file).absolute()
        self.places = processes
        """Sessions that may be open at once in this process; more wait."""
        self._gate = Gate(processes)
        self._plans: dict[str, list[str]] = {}

    @cached_property
    def games(self) -> Mapping[str, files.GameFile]:
        """Id → game. Raises DataError for games that are missing, damaged or were changed."""
        found = files.find(self.games_dir)
        if self.tasks_file is not None:
            return files.frozen(found, self.tasks_file, self.n_tasks, self.seed)
        return files.choose(found, self.n_tasks, self.seed)

    def freeze(self, path: Path | None = None) -> Path:
        """Write the list of games, to `tasks_file` unless another is named; returns where.

        Raises UserError where neither is given.
        """
        path = file_to_freeze(self.name, path, self.tasks_file)
        games = files.choose(files.find(self.games_dir), self.n_tasks, self.seed)
        files.write_list(games, path, self.seed)
        return path

    def tasks(self) -> Sequence[Task]:
        """Every game, in the order of ids."""
        return [
            Task(
                self.name,
                game.game_id,
                game.kind,
                game.goal,
                meta={"sha256": game.sha256, "type": game.kind.rpartition("/")[2].split("-")[0]},
            )
            for game in self.games.values()
        ]

    def oracle(self, task: Task) -> list[str]:
        """The planner's commands for a game; it runs in a process of its own."""
        if task.task_id not in self._plans:
            game = self.games[task.task_id]
            self._plans[task.task_id] = plan(game.path, game.sha256, self.seconds)
        return self._plans[task.task_id]

    def open_sessions(self) -> int:
        """Games that are open in this process."""
        return len(self._gate.live)

    def pools(self) -> Mapping[str, str] | None:
        """None: pools are drawn by group."""
        return None

    def fingerprint(self) -> str:
        """Hash of the games, the packages' versions, the rules, the cap and the prompt."""
        self._need_package()
        from sentinel.benchmarks.alfworld.worker import versions

        parts = [f"{game.game_id} {game.sha256}" for game in self.games.values()]
        parts += [f"{name} {version}" for name, version in versions().items()]
        parts += [str(RULES_VERSION), str(self.max_turns), self.system_prompt()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def system_prompt(self) -> str:
        """Commands, rules and the form of a reply."""
        return PROMPT.format(max_turns=self.max_turns)

    def make_env(self, task: Task) -> Environment:
        """A game that is not open yet: `reset` starts its process."""
        return AlfworldEnvironment(self.games[task.task_id], self._gate, self.seconds)

    def prepare(self, cache: Path) -> None:
        """Nothing to build; package and games are looked at."""
        del cache
        self._need_package()
        _ = self.games

    def close(self) -> None:
        """Episodes close their games themselves; nothing else runs."""

    def _need_package(self) -> None:
        lacks = [n for n in ("alfworld", "textworld", "fast_downward") if find_spec(n) is None]
        if lacks:
            raise UserError(
                f"{self.name} needs {', '.join(lacks)}", "pip install 'sentinel-suite[alfworld]'"
            )
