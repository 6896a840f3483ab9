"""An asyncio loop whose time is virtual: nothing waits, and every run is the same."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.BaseSelector):
    """Answers at once, and lets the clock jump to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:  # no timer is left, and no file will ever be ready
            raise RuntimeError("everything waits and nothing will happen")
        self.now += max(timeout, 0.0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> Any:
        return self._real.unregister(fileobj)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Timers fire in order; between them no time passes."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        # The default rounds timers up to a microsecond of the real clock.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
