"""What runs on a worker. Functions cross to it by name: they must live in an importable module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")


def call(fn: Callable[[I], R], item: I, threads: int = 1) -> R:
    """`fn(item)` with as many compute threads as the task has CPUs."""
    use_threads(threads)
    return fn(item)


def use_threads(threads: int) -> None:
    """Bound BLAS and torch to `threads`, whether torch is loaded already or later."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def check_importable(fn: Callable[..., Any]) -> None:
    """Refuse a function that a worker cannot import by name (a bug of the caller).

    Raises TypeError: lambdas and nested functions would travel as code, and `jobs` and `__main__`
    would tie running work to a file that someone edits meanwhile.
    """
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
    package = (module or "").partition(".")[0]
    if package in ("jobs", "__main__", "") or "<" in name or "." in name:
        raise TypeError(f"{module}.{name} cannot run on a worker: use a module-level function")
