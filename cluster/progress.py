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

    def __enter__(self) -> Progress:
        from cluster.progress_board import Link

        if self._stream.isatty():
            self._open_bar()
        self._link = Link.open(self._run_dir.root.name) if self._run_dir is not None else None
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
            more = ", ".join([self._head(), *self._numbers()])
            self._bar.update(self._task, completed=self.done, description=more)
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
        """`collect: 312/2160 episodes, 3 failed, 2/2 busy, 810 tokens/s, $0.12, ETA 4 min`."""
        parts = [f"{self._head()}: {self.done}/{self.total} {self.unit}"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts += self._numbers()
        if self.note:
            parts.append(self.note)
        eta = self.eta_seconds
        seconds = time.monotonic() - self._start
        if self.done >= self.total:
            parts.append(f"took {duration(seconds)}")
        elif eta is not None:
            parts.append(f"ETA {duration(eta)}")
        return ", ".join(parts)

    def _numbers(self) -> list[str]:
        """What else is known of the stage, for a line."""
        counts, parts = self.counts, []
        if counts.get("cached"):
            parts.append(f"{counts['cached']:.0f} from before")
        if counts.get("replicas") and self.done < self.total:
            parts.append(f"{counts.get('replicas_busy', 0):.0f}/{counts['replicas']:.0f} busy")
        if counts.get("tokens_per_second"):
            parts.append(f"{counts['tokens_per_second']:,.0f} tokens/s")
        if "spend_usd" in counts:
            parts.append(f"${counts['spend_usd']:.2f}")
        return parts

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
        }


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
