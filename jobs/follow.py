"""What became of a run's Slurm jobs, and following a run while it works."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.job_record import Look
    from cluster.slurm import Queued

EVERY = 2.0
SILENCE = 600.0
"""Seconds without any answer of Slurm's after which following ends."""
LATE = 10.0
"""Seconds that a shared disk may take to show what a job wrote at its end."""


def jobs(root: Path, queue: dict[str, Queued] | None = None) -> list[Look]:
    """How each job of the last submission stands; without `queue` from files alone."""
    from cluster import job_record as record

    submissions = record.read(root)
    return record.look(root, submissions[-1], queue) if submissions else []


def ask_queue(root: Path) -> dict[str, Queued] | None:
    """What Slurm says of the last submission's jobs; None without one, or without Slurm."""
    import shutil

    from cluster import job_record as record
    from cluster import slurm

    submissions = record.read(root)
    if not submissions or shutil.which("squeue") is None:
        return None
    return slurm.queue(submissions[-1].token)


def as_json(looks: list[Look]) -> list[dict[str, Any]]:
    """The jobs as JSON-able mappings."""
    return [asdict(item) for item in looks]


def lines(looks: list[Look]) -> list[str]:
    """One line per job, and under a failed one the line of its log and the log's path."""
    out = []
    for item in looks:
        cause = f" ({item.cause})" if item.cause else ""
        out.append(f"  job {item.key:10} {item.stage:11} {item.element:24} {item.state}{cause}")
        if item.state in ("failed", "incomplete"):
            out += [f"             {item.line}"] if item.line else []
            out.append(f"             log: {item.log}")
    return out


def follow(
    root: Path, show: Callable[[], list[str]], *, every: float = EVERY, silence: float = SILENCE
) -> None:
    """Print what changes until every job is over; `show` gives the lines of a run's state.

    Raises UserError when Slurm has not answered for `silence` seconds. Jobs are over by their own
    outcome files or by the queue, which forgets them some minutes after their end.
    """
    from cluster import job_record as record

    if not record.read(root):
        _follow_driver(root, show, every)
        return
    told: set[str] = set()
    heard = time.monotonic()
    over_since: float | None = None
    while True:
        try:
            queue = ask_queue(root)
            heard = time.monotonic()
        except UserError as error:
            if time.monotonic() - heard > silence:
                raise
            queue = None
            _tell([f"sentinel: {error}"], told)
        looks = jobs(root, queue)
        _tell([*show(), *(x for x in lines(looks) if "log: " not in x)], told)
        counts = record.summary(looks)
        busy = sum(counts.get(s, 0) for s in ("waiting", "running", "submitted"))
        over_since = None if busy else (over_since or time.monotonic())
        settled = all(item.state == "done" for item in looks)
        if over_since is not None and (settled or time.monotonic() - over_since > LATE):
            return
        time.sleep(every)


def _follow_driver(root: Path, show: Callable[[], list[str]], every: float) -> None:
    """Print what changes while a driver holds the run directory."""
    told: set[str] = set()
    while True:
        lives = _driver_lives(root)
        _tell(show(), told)
        if not lives:
            return
        time.sleep(every)


def _driver_lives(root: Path) -> bool:
    """Whether a lock names a process that may still work."""
    import os
    import socket

    from cluster import files

    for path in (root / "locks").glob("*.lock"):
        holder = files.read_json(path) or {}
        if "pid" not in holder:
            continue
        if holder.get("host") != socket.gethostname():
            return True
        try:
            os.kill(int(holder["pid"]), 0)
            return True
        except (ProcessLookupError, ValueError):
            continue
        except PermissionError:
            return True
    return False


def _tell(found: list[str], told: set[str]) -> None:
    for line in found:
        if line not in told:
            told.add(line)
            print(f"[{time.strftime('%H:%M:%S')}] {line.strip()}", flush=True)
    sys.stdout.flush()
