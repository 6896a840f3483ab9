"""Whether a Ray is up: all its nodes, asked by a process of its own; and later, still its head."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType

from cluster import ray_ready
from cluster.forward import end_group
from cluster.tied import tied
from sentinel.errors import UserError

PULSE, SILENCE = 5.0, 45.0
"""Seconds between a worker's looks at the head, and without an answer until it counts as gone."""


class Probe:
    """`ray_ready` as a child for the time of a block: how many nodes a driver sees alive."""

    def __init__(self, address: str, nodes: int, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            tied([sys.executable, "-P", ray_ready.__file__, address, str(nodes)], deaf=True),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        assert self._process.stdout is not None
        self._stream = self._process.stdout
        os.set_blocking(self._stream.fileno(), False)
        self._text = b""

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end_group(self._process)
        self._stream.close()

    def ended(self) -> bool:
        """Whether it has seen all nodes, or failed."""
        return self._process.poll() is not None

    def alive(self) -> int:
        """Nodes that were alive when it last looked."""
        counts = [line for line in self._lines() if line.isdigit()]
        return int(counts[-1]) if counts else 0

    def cause(self) -> str:
        """What it said last, for one that failed."""
        words = [" ".join(line.split()) for line in self._lines() if not line.isdigit()]
        return words[-1] if words else f"exit code {self._process.poll()}"

    def _lines(self) -> list[str]:
        while chunk := self._stream.read(65536):
            self._text += chunk
        whole = self._text.rpartition(b"\n")[0]
        return [x for x in whole.decode("utf-8", "replace").splitlines() if x.strip()]


class Pulse:
    """Whether the head still answers. Ray itself would go on trying for minutes."""

    def __init__(self, address: str, silence: float = SILENCE) -> None:
        self.address, self.silence = address, silence
        self._heard = time.monotonic()
        self._next = 0.0

    def check(self) -> None:
        """Ask now and then. Raises UserError when the head has been silent for too long."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + min(PULSE, self.silence / 2)
        if ray_ready.answers(self.address):
            self._heard = time.monotonic()
        elif now - self._heard > self.silence:
            raise UserError(
                f"the head at {self.address} is gone, seen from {socket.gethostname()}",
                "see the log of rank 0",
            )
