"""The journal of a worker: one JSON line per finished episode, never rewritten.

Each worker creates and owns its file. SIGKILL loses at most the episodes in flight: a line is
flushed to the kernel when it is written, and to the disk within a second.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")
SYNC_SECONDS = 0.5
"""Longest time a line waits for its fsync (half of what is promised)."""


class JournalBroken(OSError):
    """The disk took no line (full, quota, read-only, gone); what was written before is whole."""


class Journal:
    """Append-only JSONL file, created on the first line; refuses a file that already exists.

    A line that the disk takes only in part is taken back, or stays as a last line without its
    newline: nothing follows it, so no reader takes it for an episode.
    """

    def __init__(self, path: Path, sync_seconds: float = SYNC_SECONDS) -> None:
        self.path = path
        self._period = sync_seconds
        self._handle: int | None = None
        self._lock = threading.Lock()
        self._dirty = threading.Event()
        self._closed = False
        self._broken: OSError | None = None

    def append(self, line: str) -> None:
        """Add one line (no newline inside; JSON escapes them). Safe from several threads.

        Raises JournalBroken when the disk does not take it, and for every line after that.
        """
        if "\n" in line:
            raise ValueError("a journal line must not contain a newline")
        data = line.encode("utf-8", "surrogatepass") + b"\n"
        with self._lock:
            if self._closed:
                raise ValueError(f"journal {self.path} is closed")
            try:
                if self._broken is not None:
                    raise self._broken
                self._write(data)
            except FileExistsError:
                raise
            except OSError as error:
                self._broken = error
                raise self._failed(error) from error
            self._dirty.set()

    def close(self) -> None:
        """Sync and close; further lines are refused.

        Raises JournalBroken when the disk did not take everything.
        """
        with self._lock:
            self._closed = True
            handle, self._handle = self._handle, None
            self._dirty.set()
            if handle is None:
                return
            try:
                os.fsync(handle)
            except OSError as error:
                self._broken = error
            finally:
                os.close(handle)
            if self._broken is not None:
                raise self._failed(self._broken) from self._broken

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        handle = self._open()
        before = os.fstat(handle).st_size
        try:
            while data:  # one write nearly always; a short one is continued
                data = data[os.write(handle, data) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, before)
            raise

    def _failed(self, error: OSError) -> JournalBroken:
        return JournalBroken(f"cannot write {self.path}: {error.strerror or error}")

    def _open(self) -> int:
        if self._handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._handle = os.open(self.path, flags, 0o644)
            threading.Thread(target=self._sync, name="journal-sync", daemon=True).start()
        return self._handle

    def _sync(self) -> None:
        while self._dirty.wait():
            with self._lock:
                if self._handle is None:
                    return
                self._dirty.clear()
                handle = os.dup(self._handle)
            try:
                os.fsync(handle)  # outside the lock: writers go on
            except OSError as error:  # the next line, or the close, says so
                self._broken = error
                return
            finally:
                os.close(handle)
            threading.Event().wait(self._period)


@dataclass(slots=True)
class Account:
    """What reading journals met: each bad line and each duplicate is counted, and named once."""

    files: int = 0
    records: int = 0
    torn: int = 0
    bad: int = 0
    duplicates: int = 0
    bad_lines: list[str] = field(default_factory=list)


class Reader(Generic[T]):
    """Reads journals one file at a time: `decode` turns a line into a record, `key` names it.

    A last line without its newline was being written when the worker died: ignored. A line that
    `decode` refuses costs that record. The first record of a key counts.
    """

    def __init__(self, decode: Callable[[str], T], key: Callable[[T], str]) -> None:
        self._decode, self._key = decode, key
        self.seen: set[str] = set()
        self.account = Account()

    def read(self, paths: Iterable[Path]) -> Iterator[T]:
        """New records of the files, in the order given."""
        for path in paths:
            self.account.files += 1
            with path.open("rb") as file:
                for number, raw in enumerate(file, 1):  # binary files split on \n only
                    record = self._line(raw, f"{path}:{number}")
                    if record is not None:
                        yield record

    def _line(self, raw: bytes, where: str) -> T | None:
        if not raw.endswith(b"\n"):
            self.account.torn += 1
            return None
        try:
            record = self._decode(raw[:-1].decode("utf-8", "surrogatepass"))
            key = self._key(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.account.bad += 1
            if len(self.account.bad_lines) < 20:
                self.account.bad_lines.append(f"{where}: {type(error).__name__}: {error}"[:300])
            return None
        if key in self.seen:
            self.account.duplicates += 1
            return None
        self.seen.add(key)
        self.account.records += 1
        return record
