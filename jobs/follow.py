"""What became of a run's Slurm jobs, and following a run while it works."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.job_record import Look
    from cluster.slurm import Queued

Lines = dict[str, tuple[str, str]]
"""By what a line is about: its part that matters, and its part that changes all the time."""
EVERY = 2.0
SILENCE = 600.0
"""Seconds without any answer of Slurm's after which following ends."""
AT_ONCE = 5.0
OFTEN = 10.0
"""Seconds between two lines about one thing of which only numbers have changed."""
LATE = 10.0
"""Seconds that a shared disk may take to show what a job wrote at its end."""


def jobs(root: Path, queue: dict[str, Queued] | None = None) -> list[Look]:
    """How each job of the last submission stands; without `queue` from files alone."""
    from cluster import job_record as record

    submissions = record.read(root)
    return record.look(root, submissions[-1], queue) if submissions else []


def ask_queue(root: Path, seconds: float = 30.0) -> dict[str, Queued] | None:
    """What Slurm says of the last submission's jobs; None without one, or without Slurm."""
    import shutil

    from cluster import job_record as record
    from cluster import slurm

    submissions = record.read(root)
    if not submissions or shutil.which("squeue") is None:
        return None
    return slurm.queue(submissions[-1].token, seconds)


def seen(root: Path) -> dict[str, Queued] | None:
    """What Slurm says, where it answers at once; None where it does not."""
    try:
        return ask_queue(root, AT_ONCE)
    except UserError:
        return None


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
    root: Path, show: Callable[[], Lines], *, every: float = EVERY, silence: float = SILENCE
) -> None:
    """Print what changes until every job is over; `show` gives the lines of the run's state.

    Raises UserError when Slurm has not answered for `silence` seconds. Jobs are over by their own
    outcome files or by the queue, which forgets them some minutes after their end.
    """
    from cluster import job_record as record

    if not record.read(root):
        _follow_driver(root, show, every)
        return
    told = _Told()
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
            told.tell({"slurm": (f"sentinel: {error}", "")})
        looks = jobs(root, queue)
        told.tell({**show(), **{x.key: (" ".join(lines([x])[0].split()), "") for x in looks}})
        counts = record.summary(looks)
        busy = sum(counts.get(s, 0) for s in ("waiting", "running", "submitted"))
        over_since = None if busy else (over_since or time.monotonic())
        settled = all(item.state == "done" for item in looks)
        if over_since is not None and (settled or time.monotonic() - over_since > LATE):
            return
        time.sleep(every)


def _follow_driver(root: Path, show: Callable[[], Lines], every: float) -> None:
    """Print what changes while a driver holds the run directory."""
    told = _Told()
    while True:
        lives = _driver_lives(root)
        told.tell(show())
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


class _Told:
    """What was printed; a line whose numbers alone change is printed now and then."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str, float]] = {}

    def tell(self, found: Lines) -> None:
        """Print what is new."""
        now = time.monotonic()
        for key, (text, more) in found.items():
            before = self._last.get(key)
            news = before is None or before[0] != text
            if news or (before is not None and before[1] != more and now - before[2] >= OFTEN):
                self._last[key] = (text, more, now)
                print(f"[{time.strftime('%H:%M:%S')}] {text}{more}", flush=True)
