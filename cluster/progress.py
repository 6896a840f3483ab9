"""Progress that a person sees: a bar on a terminal, a line per 30 s in a log, and a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from cluster import files
from cluster.run_dir import RunDir

LINE_SECONDS = 30.0
FILE_SECONDS = 1.0


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
        self._before = done
        self._run_dir = run_dir
        self._stream = stream or sys.stderr
        self._line_seconds = line_seconds
        self._start = self._last_line = time.monotonic()
        self._last_file = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            self._open_bar()
        self._write("running")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=self._head())
        elif now - self._last_line >= self._line_seconds:
            self._print()
        if now - self._last_file >= FILE_SECONDS:
            self._write("running")

    @property
    def eta_seconds(self) -> float | None:
        """Seconds left at this session's rate; None before the first item."""
        new = self.done - self._before
        if new <= 0:
            return None
        return (time.monotonic() - self._start) / new * max(self.total - self.done, 0)

    def line(self) -> str:
        """`collect clinic/steady: 312/2160 episodes, 3 failed, 2 workers, ETA 4 min`."""
        parts = [f"{self._head()}: {self.done}/{self.total} {self.unit}"]
        if self.failed:
            parts.append(f"{self.failed} failed")
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
        eta = self.eta_seconds
        value = {
            "stage": self.stage,
            "state": state,
            "done": self.done,
            "total": self.total,
            "failed": self.failed,
            "unit": self.unit,
            "note": self.note,
            "eta_seconds": None if eta is None else round(eta, 1),
            "at": time.time(),
        }
        files.write_json(self._run_dir.progress_path(self.stage), value)


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
