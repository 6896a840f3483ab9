"""The scripted engine with faults that happen once each: files in its folder of switches.

`die` (the engine says it is gone), `hang` (no answer any more, no token), `stop` (the budget is
spent). A switch is a file that holds a number: the fault comes with that many replies given by the
process. `hang` and `die` disappear when they have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripted_replies import ScriptedReplies

from sentinel.engine import EngineDied, Generation, Request, Stop


class TroubledReplies(ScriptedReplies):
    """Counts its tokens, so that it can be watched."""

    def __init__(self, name: str, switches: Path, seconds: float) -> None:
        super().__init__(name, switches, seconds)
        self.progress = self.replies = 0
        self.hung = False

    async def generate(self, request: Request) -> Generation:
        if self._due("stop"):
            raise Stop("the budget of $1.00 is spent")
        if self._once("die"):
            raise EngineDied("CUDA error: an illegal memory access was encountered")
        self.hung = self.hung or self._once("hang")
        if self.hung:
            await asyncio.Event().wait()
        generation = await super().generate(request)
        self.progress += generation.generated_tokens
        self.replies += 1
        return generation

    def _due(self, name: str) -> bool:
        try:
            return self.replies >= int((self.switches / name).read_text())
        except FileNotFoundError:
            return False

    def _once(self, name: str) -> bool:
        if not self._due(name):
            return False
        try:
            (self.switches / name).unlink()  # one process alone succeeds
        except FileNotFoundError:
            return False
        return True


def make(agent: Mapping[str, Any]) -> TroubledReplies:
    """`revision` holds the seconds per reply."""
    folder = Path(str(agent["model"]).removeprefix("switches:"))
    return TroubledReplies(str(agent["name"]), folder, float(agent.get("revision", "0.01")))
