"""One ALFWorld episode: a process of its own, from `reset` to `close`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary, WeakSet

from sentinel.agent.react import Action
from sentinel.benchmarks.alfworld.games import GameFile
from sentinel.benchmarks.alfworld.session import Session
from sentinel.benchmarks.alfworld.worker import NOTHING
from sentinel.benchmarks.base import Step


class Gate:
    """At most so many games at once in this process; the others wait, they are not refused."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self.live: WeakSet[AlfworldEnvironment] = WeakSet()

    @property
    def room(self) -> asyncio.Semaphore:
        """The places of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._rooms:
            self._rooms[loop] = asyncio.Semaphore(self._most)
        return self._rooms[loop]


class AlfworldEnvironment:
    """One game. `success` is the game's own `won`, given with every step; `done` never is.

    A command that the game does not know changes nothing and is answered as the game answers it
    (`Nothing happens.`). `versions` names what the game ran on, once it is open.
    """

    def __init__(self, game: GameFile, gate: Gate, seconds: float) -> None:
        self._game, self._gate, self._seconds = game, gate, seconds
        self._session: Session | None = None
        self._held: asyncio.Semaphore | None = None
        self._moves: list[str] = []
        self._won = False
        self.versions: str | None = None

    async def reset(self) -> str:
        """Wait for a place, start the process, and read the first observation."""
        await self.close()
        room = self._gate.room
        await room.acquire()
        self._held = room
        self._gate.live.add(self)
        self._session = Session(self._game.path, self._game.sha256, self._seconds)
        found = await self._session.open()
        self.versions = ", ".join(f"{name} {version}" for name, version in found.items())
        reply = await self._session.ask({"do": "reset"})
        self._moves, self._won = reply["moves"], reply["won"]
        return str(reply["feedback"])

    async def step(self, action: Action) -> Step:
        """Carry out one command; case and spaces around words do not matter."""
        if action.kind != "act":
            raise ValueError(f"the environment was given a {action.kind} turn")
        if self._session is None:
            raise RuntimeError("the game is not open: reset comes first")
        command = " ".join(action.text.lower().split())
        reply = await self._session.ask({"do": "step", "command": command})
        self._moves, self._won = reply["moves"], reply["won"]
        return Step(
            observation=reply["feedback"],
            status="error" if reply["feedback"] == NOTHING else "ok",
            done=reply["won"] or reply["lost"],
            success=reply["won"],
        )

    def moves(self) -> Sequence[str]:
        """Commands that the game would carry out now."""
        return self._moves

    def verdict(self) -> bool:
        """Whether the game is won, also of an episode that never made a well-formed move."""
        return self._won

    @property
    def pid(self) -> int | None:
        """The game's process, while there is one."""
        return None if self._session is None else self._session.pid

    async def close(self) -> None:
        """End the process and give the place back; may be called twice."""
        session, self._session = self._session, None
        held, self._held = self._held, None
        try:
            if session is not None:
                await session.close()
        finally:
            if held is not None:
                held.release()
                self._gate.live.discard(self)
