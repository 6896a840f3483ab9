"""How a signal stops a command: cleanly, once, wherever it is at work."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
STOPS = (signal.SIGTERM, signal.SIGUSR2)
"""Slurm's end, and its warning."""


class Stopped(KeyboardInterrupt):
    """A signal asked this process to stop; its number is the argument."""


def ignore() -> None:
    """The clean-up that follows a signal is not interrupted again."""
    for s in STOPS:
        signal.signal(s, signal.SIG_IGN)


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGUSR2 (Slurm's end, and its warning) stop like Ctrl-C: cleanly, once.

    Yields what takes the signals again after someone else took them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {s: signal.getsignal(s) for s in STOPS}

    def stop(number: int, frame: object) -> None:
        ignore()
        raise Stopped(number)

    def take() -> None:
        for s in STOPS:
            signal.signal(s, stop)

    take()
    try:
        yield take
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, with a signal to stop as a cancellation of the coroutine.

    An exception out of a signal's handler would leave the event loop in the middle of some task's
    step, and the coroutines' clean-up without a loop. Raises Stopped once that clean-up is over.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(main)
    caught: list[int] = []
    before = {s: signal.getsignal(s) for s in STOPS}

    async def guarded() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            if not caught:
                task.cancel()
            caught.append(number)

        for s in STOPS:
            loop.add_signal_handler(s, stop, s)
        try:
            return await main
        finally:
            for s in STOPS:
                loop.remove_signal_handler(s)
            if caught:
                ignore()
            else:
                for s, handler in before.items():
                    signal.signal(s, handler)

    try:
        found = asyncio.run(guarded())
    except asyncio.CancelledError:
        if not caught:
            raise
    if caught:
        raise Stopped(caught[0])
    return found
