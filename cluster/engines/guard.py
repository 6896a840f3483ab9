"""Ends an engine's processes when the process that owns them is gone, however it went.

A process of its own: `python guard.py`, which reads `PID CREATE_TIME` lines and waits for the end
of its input. The owner's death closes that, even a SIGKILL; then every named process that is still
the one named is killed, with all below it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path


class Guard:
    """The owner's side. Name processes with `watch`, and end the guard with `release`."""

    def __init__(self) -> None:
        self.watched: set[int] = set()
        # A session of its own: a signal to the owner's group must not end it first.
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        """End this process, too, when the owner is gone."""
        import psutil

        if pid in self.watched or self._process.stdin is None:
            return
        self.watched.add(pid)
        with contextlib.suppress(psutil.Error, OSError):
            begun = psutil.Process(pid).create_time()
            self._process.stdin.write(f"{pid} {begun!r}\n".encode())
            self._process.stdin.flush()

    def release(self) -> None:
        """End the guard; what it watched and is still alive is killed."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def kill_tree(pid: int, begun: float) -> None:
    """SIGKILL a process, if it is still the one that began then, and all below it."""
    import psutil

    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        if root.create_time() != begun:
            return
        for process in [*root.children(recursive=True), root]:
            with contextlib.suppress(psutil.Error):
                process.kill()


def main() -> None:
    """Read names until the owner is gone, then kill."""
    named = [line.split() for line in sys.stdin]
    for pid, begun in named:
        kill_tree(int(pid), float(begun))


if __name__ == "__main__":
    main()
