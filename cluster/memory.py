"""Peak memory of a process and everything below it, sampled while a stage runs."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

EVERY = 0.5
"""Seconds between two samples."""


class PeakMemory:
    """Sample the private memory of this process and its descendants; `mb` is the largest sum.

    Memory that processes share (the object store) counts once. Workers on other nodes are not
    below this process and are not seen.
    """

    def __init__(self, every: float = EVERY) -> None:
        self.mb = 0.0
        self._every = every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        self.mb = max(self.mb, tree_mb())

    def _watch(self) -> None:
        while not self._end.wait(self._every):
            self.mb = max(self.mb, tree_mb())


def tree_mb() -> float:
    """Private memory of this process and its descendants plus the largest shared part, in MiB."""
    try:
        me = psutil.Process()
        processes = [me, *me.children(recursive=True)]
    except psutil.Error:
        return 0.0
    private = shared = 0
    for process in processes:
        try:
            info = process.memory_info()
        except psutil.Error:  # it ended meanwhile
            continue
        own = getattr(info, "shared", 0)
        private += max(info.rss - own, 0)
        shared = max(shared, own)
    return (private + shared) / 2**20
