"""A game in a process of its own, as this process talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
SECONDS = 120.0
"""For one request; the first one loads TextWorld."""


class SessionLost(RuntimeError):
    """The game's process died, hung, or refused a request."""


class Session:
    """One exec'ed worker. All requests come from the thread that opened it, one at a time.

    Raises SessionLost; the process is gone after it, and after `close`.
    """

    def __init__(self, path: Path, sha256: str, seconds: float = SECONDS) -> None:
        self._path, self._sha256, self._seconds = path, sha256, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: int | None = None
        self._busy = False

    async def open(self) -> dict[str, str]:
        """Start the process and load the game; returns the versions it runs."""
        self._owner = threading.get_ident()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return await self.ask({"do": "open", "path": str(self._path), "sha256": self._sha256})

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request and its reply."""
        if threading.get_ident() != self._owner:
            raise SessionLost("a session belongs to the thread that opened it: open another")
        if self._busy:
            raise SessionLost("a session takes one request at a time: open another")
        self._busy = True
        try:
            line = await asyncio.wait_for(asyncio.to_thread(self._exchange, request), self._seconds)
        except TimeoutError as error:
            self.kill()
            raise SessionLost(f"no answer in {self._seconds:.0f} s") from error
        finally:
            self._busy = False
        if not line:
            self.kill()
            raise SessionLost("the game's process ended")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise SessionLost(reply["error"])
        return reply

    def _exchange(self, request: dict[str, Any]) -> bytes:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return b""
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return process.stdout.readline()
        except (OSError, ValueError):
            return b""  # killed meanwhile

    def kill(self) -> None:
        """End the process at once; may be called twice."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a request that nobody reads any more
                    pipe.close()

    async def close(self) -> None:
        """End the process."""
        await asyncio.to_thread(self.kill)


def plan(path: Path, sha256: str, seconds: float = SECONDS) -> list[str]:
    """The planner's commands for a game, from a process of its own; blocks.

    Raises SessionLost.
    """
    requests = ({"do": "open", "path": str(path), "sha256": sha256}, {"do": "reset", "plan": True})
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(WORKER)],
            input="".join(json.dumps(r) + "\n" for r in requests).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SessionLost(f"no plan in {seconds:.0f} s") from error
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    faults = [str(r["error"]) for r in replies if "error" in r]
    if faults or len(replies) != len(requests):
        raise SessionLost(faults[0] if faults else "the game's process ended")
    return [str(command) for command in replies[-1]["plan"]]
