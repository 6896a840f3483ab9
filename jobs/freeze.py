"""`sentinel freeze CONFIG`: write a benchmark's tasks to a hashed file, which every run then reads.

CONFIG is a run's or a benchmark's alone. Only benchmarks whose tasks are made from a user's data
have something to freeze; the file holds part of that data and stays with the user.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sentinel.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG and where the file goes."""
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument("settings", nargs="*", metavar="key.path=value")
    parser.add_argument("--out", type=Path, help="default: the benchmark's tasks_file")


def main(args: argparse.Namespace) -> int:
    """Freeze the tasks of every benchmark of the config that can."""
    from jobs.doctor import read
    from sentinel.benchmarks.registry import load

    config, _ = read(args.config, args.settings)
    loaded = [load(item.mapping()) for item in config.benchmarks]
    able: list[Any] = [benchmark for benchmark in loaded if hasattr(benchmark, "freeze")]
    if not able:
        raise UserError(
            f"{args.config} has no benchmark whose tasks can be frozen",
            "its tasks are fixed already; sentinel tasks shows them",
        )
    if args.out is not None and len(able) > 1:
        raise UserError(
            f"--out names one file for {len(able)} benchmarks", "set each one's tasks_file instead"
        )
    for benchmark in able:
        try:
            path = benchmark.freeze(args.out)
        except OSError as error:
            raise UserError(f"cannot write the tasks: {error}", "name another file") from error
        print(f"{benchmark.name}: {len(benchmark.tasks())} tasks, {path}")
    return 0
