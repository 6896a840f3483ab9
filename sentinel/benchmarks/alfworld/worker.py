"""The process of one ALFWorld game: executed by `session`, never forked or called in process.

TextWorld's PDDL engine keeps global state in a C library and is not safe across threads or across
games of one process, so a process holds one game at a time, used by the thread that opened it.
One JSON line comes in on standard input, one goes out on what was standard output; whatever the
libraries print goes to standard error. It needs nothing of this project, and ends with its input.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from importlib.metadata import version
from typing import Any, ClassVar

NOTHING = "Nothing happens."
"""TextWorld's answer to a command that is not admissible."""


class ThreadMisuse(RuntimeError):
    """A second game in one process, or a game used by another thread than its own."""


class Game:
    """One game. Raises ThreadMisuse where it is not used alone and by one thread."""

    _open: ClassVar[Game | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str, sha256: str) -> None:
        with Game._lock:
            if Game._open is not None:
                raise ThreadMisuse("this process has a game already; open each in its own process")
            Game._open = self
        self._thread = threading.get_ident()
        try:
            self._env = self._load(path, sha256)
        except BaseException:
            Game._open = None
            raise

    def _load(self, path: str, sha256: str) -> Any:
        with open(path, "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"{path} was changed: it is no longer the task of this id")
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv

        env = AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)), shuffle=False)
        env.load(json.loads(data))
        return env

    def reset(self, plan: bool = False) -> dict[str, Any]:
        """Begin; with `plan` the planner's commands come along."""
        self._check()
        self._env.request_infos.policy_commands = plan
        state = self._env.reset()
        return self._told(state) | ({"plan": list(state["policy_commands"])} if plan else {})

    def step(self, command: str) -> dict[str, Any]:
        """Carry out one command."""
        self._check()
        state, _, _ = self._env.step(command)
        return self._told(state)

    def close(self) -> None:
        """Free the process for another game."""
        self._check()
        self._env.close()
        Game._open = None

    def _check(self) -> None:
        if threading.get_ident() != self._thread:
            raise ThreadMisuse("this game belongs to another thread; open one process per game")

    @staticmethod
    def _told(state: Any) -> dict[str, Any]:
        return {
            "feedback": str(state["feedback"]),
            "won": bool(state["won"]),
            "lost": bool(state["lost"]),
            "moves": list(state["admissible_commands"]),
        }


def versions() -> dict[str, str]:
    """What an episode depends on besides its game."""
    return {name: version(name) for name in ("alfworld", "textworld", "fast-downward-textworld")}


def answer(game: Game | None, request: dict[str, Any]) -> tuple[Game | None, dict[str, Any]]:
    """Carry out one request; a game's failure is an answer."""
    try:
        if request["do"] == "open":
            game = Game(request["path"], request["sha256"])
            return game, versions()
        if game is None:
            raise RuntimeError("no game is open")
        if request["do"] == "reset":
            return game, game.reset(bool(request.get("plan")))
        return game, game.step(request["command"])
    except Exception as error:
        return game, {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Serve until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the planner writes to descriptor 1
    game: Game | None = None
    for line in sys.stdin:
        game, reply = answer(game, json.loads(line))
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    main()
