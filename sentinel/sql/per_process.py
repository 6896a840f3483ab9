"""One sandbox pool per process, whoever made the object that asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentinel.sql.sandbox import SandboxPool


class PerProcess:
    """Keeps the sandbox pool of this process: made at first use.

    It travels without its worker processes, and a forked child leaves its parent's alone.
    """

    def __init__(self) -> None:
        self._pool: SandboxPool | None = None
        self._pid = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_pool": None, "_pid": 0}

    @property
    def is_open(self) -> bool:
        """Whether this process has a pool here."""
        return self._pool is not None and self._pid == os.getpid()

    def get(self, make: Callable[[], SandboxPool]) -> SandboxPool:
        """The pool of this process; the first call makes it."""
        if self._pool is None or not self.is_open:
            self._pool, self._pid = make(), os.getpid()
        return self._pool

    def close(self) -> None:
        """End the workers of this process."""
        if self._pool is not None and self.is_open:
            self._pool.close()
        self._pool = None
