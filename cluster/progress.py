"""Progress that a person sees: a bar on a terminal, a line per 30 s in a log, and a file."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from cluster import files
from cluster.run_dir import RunDir

LINE_SECONDS = 30.0
FILE_SECONDS = 1.0
BEAT_SECONDS = 10.0
"""A running stage writes its file at least so often, also while nothing finishes."""
SILENT_SECONDS = 60.0
"""Age of a running stage's file after which its process counts as gone."""


class Progress:
    """Counts the items of one stage, drawn and kept in the run's `progress/<stage>.json`.

    `done` items were finished earlier; the rate and the time left are those of this session.
    """

    def __init__(
        self,
        stage: str,
        total: int,
        *,
        done: int = 0,
        unit: str = "items",
        run_dir: RunDir | None = None,
        stream: TextIO | None = None,
        line_seconds: float = LINE_SECONDS,
    ) -> None:
        self.stage, self.total, self.unit = stage, total, unit
        self.done, self.failed, self.note = done, 0, ""
        self.counts: dict[str, float] = {}
        """Further numbers of the stage, for the file and whoever draws it: collection gives cached,
        failed, generated_tokens, tokens_per_second, replicas, replicas_busy, and spend_usd where
        something is billed."""
        self._before = done
        self._run_dir = run_dir
        self._stream = stream or sys.stderr
        self._line_seconds = line_seconds
        self._start = self._last_line = time.monotonic()
        self._last_file = 0.0
        self._bar: Any = None
        self._task: Any = None
        self._link: Any = None
        self._about = about(run_dir)
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._beat = threading.Thread(target=self._beats, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        from cluster.progress_board import Link

        if self._stream.isatty():
            self._open_bar()
        self._link = Link.open(self._about) if self._run_dir is not None else None
        self._write("running")
        self._beat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._beat.join()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._write("failed" if kind is not None else "done")
        self._print()

    def advance(self, n: int = 1, failed: int = 0) -> None:
        """`n` more items finished, `failed` of them without a result."""
        self.done += n
        self.failed += failed
        self.tick()

    def tick(self) -> None:
        """Draw what is due; call it also while nothing finishes."""
        with self._lock:
            now = time.monotonic()
            if self._bar is not None:
                more = ", ".join([self._head(), *numbers(self.counts)])
                self._bar.update(self._task, completed=self.done, description=more)
            elif now - self._last_line >= self._line_seconds:
                self._print()
            if now - self._last_file >= FILE_SECONDS:
                self._write("running")

    def _beats(self) -> None:
        """What keeps a stage with long items alive for those who read its file."""
        while not self._over.wait(BEAT_SECONDS):
            with suppress(OSError):  # a full disk is met, and told, by whoever writes results
                self.tick()

    @property
    def eta_seconds(self) -> float | None:
        """Seconds left at this session's rate; None before the first item."""
        new = self.done - self._before
        if new <= 0:
            return None
        return (time.monotonic() - self._start) / new * max(self.total - self.done, 0)

    def line(self) -> str:
        """`collect: 312/2160 episodes, 3 failed, 2/2 busy, 810 tokens/s, $0.12, ETA 4 min`."""
        parts = [f"{self._head()}: {self.done}/{self.total} {self.unit}"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts += numbers(self.counts, self.done < self.total)
        if self.note:
            parts.append(self.note)
        eta = self.eta_seconds
        seconds = time.monotonic() - self._start
        if self.done >= self.total:
            parts.append(f"took {duration(seconds)}")
        elif eta is not None:
            parts.append(f"ETA {duration(eta)}")
        return ", ".join(parts)

    def _head(self) -> str:
        return self.stage

    def _print(self) -> None:
        self._last_line = time.monotonic()
        print(self.line(), file=self._stream, flush=True)

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._head(), total=self.total, completed=self.done)

    def _write(self, state: str) -> None:
        self._last_file = time.monotonic()
        if self._run_dir is None:
            return
        value = self.snapshot(state)
        files.write_json(self._run_dir.progress_path(self.stage), value)
        if self._link is not None:
            self._link.put(value, self.line(), last=state != "running")

    def snapshot(self, state: str) -> dict[str, Any]:
        """What the file, `status` and the dashboard show."""
        eta = self.eta_seconds
        return {
            "stage": self.stage,
            "state": state,
            "done": self.done,
            "total": self.total,
            "failed": self.failed,
            "unit": self.unit,
            "note": self.note,
            "counts": dict(self.counts),
            "eta_seconds": None if eta is None else round(eta, 1),
            "at": time.time(),
            **self._about,
        }


def numbers(counts: Mapping[str, float], running: bool = True) -> list[str]:
    """What `Progress.counts` adds to a line; replicas and their pace only while they work."""
    parts = []
    if counts.get("cached"):
        parts.append(f"{counts['cached']:.0f} from before")
    if counts.get("replicas") and running:
        parts.append(f"{counts.get('replicas_busy', 0):.0f}/{counts['replicas']:.0f} busy")
    if counts.get("tokens_per_second") and running:
        parts.append(f"{counts['tokens_per_second']:,.0f} tokens/s")
    if "spend_usd" in counts:
        parts.append(f"${counts['spend_usd']:.2f}")
    return parts


def about(run_dir: RunDir | None) -> dict[str, Any]:
    """Whose progress it is: run, host, process, and the Slurm job that this process belongs to."""
    job = os.environ.get("SLURM_JOB_ID")
    found = {
        "run": None if run_dir is None else run_dir.root.name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "slurm_job": job,
    }
    return {k: v for k, v in found.items() if v is not None}


def silent_seconds(path: Path) -> float:
    """How long ago a file was written, by the clock of the disk that it lies on.

    The clocks of nodes may differ by more than a running stage is silent. Where nothing can be
    written beside the file, this machine's clock is all there is.
    """
    try:
        with tempfile.TemporaryFile(dir=path.parent) as here:
            now = os.fstat(here.fileno()).st_mtime
    except OSError:
        now = time.time()
    with path.open("rb") as file:  # opened: a network disk then looks again
        return max(now - os.fstat(file.fileno()).st_mtime, 0.0)


def read_progress(run_dir: RunDir) -> list[dict[str, Any]]:
    """What every stage last wrote, oldest first."""
    found = (files.read_json(p) for p in (run_dir.root / "progress").glob("*.json"))
    return sorted((v for v in found if v is not None), key=lambda v: v.get("at", 0.0))


@contextmanager
def track(
    stage: str, items: Sequence[Any], *, unit: str = "items", run_dir: RunDir | None = None
) -> Iterator[Progress]:
    """Progress over a known list of items."""
    with Progress(stage, len(items), unit=unit, run_dir=run_dir) as progress:
        yield progress


def duration(seconds: float) -> str:
    """`42 s`, `4 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
