"""Block functions that workers import by name, and a small sweep a test can kill."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.sweep import Block
from sentinel.errors import UserError

HASH = "0" * 64


def blocks(n: int) -> list[Block]:
    return [Block("cell a", "scorer", f"seeds-{i}-{i}", {"i": i}, HASH) for i in range(n)]


def table(values: list[float]) -> pa.Table:
    return pa.table({"value": values})


def square(shared: Any, spec: dict[str, Any]) -> dict[str, pa.Table]:
    """Squares, from an array that all blocks share; leaves a line per call."""
    i = spec["i"]
    with (Path(shared["calls"])).open("a") as file:
        file.write(f"{i} {os.getpid()}\n")
    return {"numbers": table((shared["values"][i : i + 3] ** 2).tolist())}


def picky(shared: Any, spec: dict[str, Any]) -> dict[str, pa.Table]:
    if spec["i"] == 1:
        raise ValueError("one is odd")
    if spec["i"] == 2:
        raise UserError("two is missing", "bring it")
    return {"numbers": table([float(spec["i"])])}


def deadly(shared: Any, spec: dict[str, Any]) -> dict[str, pa.Table]:
    """Block 1 kills its process the first time, block 2 always."""
    mark = Path(shared) / f"died-{spec['i']}"
    if spec["i"] == 2 or (spec["i"] == 1 and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"numbers": table([float(spec["i"])])}


def title(shared: Any, spec: dict[str, Any]) -> dict[str, pa.Table]:
    """What `ps` shows of this worker."""
    shown = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b"").decode()
    return {"titles": pa.table({"title": [shown], "pid": [os.getpid()]})}


def slow(shared: Any, spec: dict[str, Any]) -> dict[str, pa.Table]:
    with (Path(shared)).open("a") as file:
        file.write(f"{spec['i']}\n")
    time.sleep(0.4)
    return {"numbers": table([float(spec["i"])])}
