"""Signals of a process that runs a command: told on to it, and remembered for afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from cluster.tied import tied

FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
GRACE = 20.0
"""Seconds that a command has after SIGTERM or SIGINT: Slurm kills after 30 by default."""
WARNED = 60.0
"""Seconds after SIGUSR1 or SIGUSR2, which come well before the end."""


class Forward:
    """Takes the forwarded signals for the time of a block; the earlier handlers come back."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._at = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Forward:
        for number in FORWARDED:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number)
        if self.received is None or name in (signal.SIGTERM, signal.SIGINT):
            if self.received != name:  # a warning and then the end: the end counts
                self._at = time.monotonic()
            self.received = name
        if self._child is not None and self._child.poll() is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)

    @property
    def overdue(self) -> bool:
        """Whether a signal came so long ago that everything should have ended."""
        if self.received is None:
            return False
        limit = WARNED if self.received in (signal.SIGUSR1, signal.SIGUSR2) else GRACE
        return time.monotonic() - self._at > limit

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own; it ends with this process."""
        self._child = subprocess.Popen(tied(command), env=dict(env), process_group=0)
        if self.received is not None:  # it came between the last look and the start
            self._child.send_signal(self.received)
        return self._child

    def pass_on(self) -> None:
        """Let the earlier handler have the signal, after all is cleaned up.

        Called after the block. submitit's handler checkpoints and requeues the job, and raises.
        """
        if self.received is None:
            return
        handler = self._before.get(self.received)
        if callable(handler):
            handler(int(self.received), None)


def end_group(process: subprocess.Popen[bytes], seconds: float = 5.0) -> None:
    """End a process and what is left of its group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            if not _group_lives(process.pid):
                return


def exit_code(returncode: int) -> int:
    """A process's return code as a shell gives it: 128 + the signal that ended it."""
    return 128 - returncode if returncode < 0 else returncode


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
