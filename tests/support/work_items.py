"""Functions that workers import by name in the tests of the cluster."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sentinel.errors import UserError


def square(x: int) -> int:
    return x * x


def picky(x: int) -> int:
    if x == 1:
        raise ValueError("one\nis odd")
    if x == 2:
        raise UserError("two is missing", "bring it")
    return x


def slowest_first(x: int) -> int:
    time.sleep(0.5 if x == 0 else 0.0)
    return x


def die_once(path: str) -> str:
    """Kills its own process the first time."""
    mark = Path(path)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def threads(_: int) -> str:
    return os.environ["OMP_NUM_THREADS"]


def make_big(rows: int) -> bytes:
    return bytes(rows)


def hog(mib: int) -> int:
    """Holds memory for a while."""
    held = bytearray(mib * 2**20)
    time.sleep(20)
    return len(held)
