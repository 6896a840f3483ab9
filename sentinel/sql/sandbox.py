"""A pool of worker processes that run a model's SQL on a read-only database."""

from __future__ import annotations

import asyncio
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from sentinel.errors import UserError
from sentinel.sql.clock import check_clock, plain
from sentinel.sql.lexer import strip_terminators
from sentinel.sql.result import Result

# Isolated (-I), without site-packages (-S): the standard library and this package, no more.
_WORKER = (
    "import json, sys; sys.path.append(sys.argv[1]); from sentinel.sql.worker import main; "
    "main(json.loads(sys.argv[2]))"
)
_ROOT = str(Path(__file__).parents[2])
_HEADER = struct.Struct(">I")
_MAGIC = b"SQLite format 3\0"
_MAX_SQL = 100_000
_START_SECONDS = 30.0
_PROBE_SECONDS = 20.0
_PROBE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may use.

    `seconds` is the deadline of a statement, watched inside the worker; `grace_seconds` later the
    worker is killed. `max_rows` and `max_bytes` cap what comes back (then `truncated`);
    `memory_bytes` caps the worker's address space, three quarters of it are SQLite's.
    """

    seconds: float = 5.0
    grace_seconds: float = 0.25
    max_rows: int = 10_000
    max_bytes: int = 8_000_000
    memory_bytes: int = 768 * 2**20


_CLOSED = "the sandbox is closed"


class WorkerDied(Exception):
    """The process of a worker ended, or did not answer in time."""


class WorkerLost(WorkerDied):
    """The process had ended before it was asked: the statement is not to blame."""


class _Worker:
    """One worker process and the pipes to it; used by one thread at a time."""

    def __init__(self, config: dict[str, Any]) -> None:
        lifeline, self._lifeline = os.pipe()
        config = {**config, "lifeline": lifeline, "parent": os.getpid()}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WORKER, _ROOT, json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=(lifeline,),
                start_new_session=True,  # Ctrl-C at a terminal is for the parent to handle
                env=_environment(),
                cwd="/",
            )
        finally:
            os.close(lifeline)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self.greeting: dict[str, Any] | None = None

    def wait_ready(self) -> dict[str, Any]:
        """The worker's first message; raises WorkerDied when it does not come."""
        if self.greeting is None:
            self.greeting = self._receive(time.monotonic() + _START_SECONDS)
        return self.greeting

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One request and its reply; raises WorkerDied after `seconds` or when the process ends."""
        self.wait_ready()
        payload = json.dumps(request).encode("ascii")
        view = memoryview(_HEADER.pack(len(payload)) + payload)
        try:
            while view:
                view = view[os.write(self._in, view) :]
        except OSError as error:
            raise WorkerLost("the worker process had ended") from error
        return self._receive(time.monotonic() + seconds)

    def _receive(self, deadline: float) -> dict[str, Any]:
        head = self._read(_HEADER.size, deadline)
        reply: dict[str, Any] = json.loads(self._read(_HEADER.unpack(head)[0], deadline))
        return reply

    def _read(self, n: int, deadline: float) -> bytes:
        parts = []
        while n:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise TimeoutError
            part = os.read(self._out, min(n, 1 << 20))
            if not part:
                raise WorkerDied("the worker process ended")
            parts.append(part)
            n -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stop(self) -> None:
        """End the process; the thread that waits for it then finds it dead, and collects it."""
        self.process.kill()

    def kill(self) -> None:
        """End the process now and collect it. Only for a worker that no thread is using."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        os.close(self._lifeline)
        self.process.wait()


def _environment() -> dict[str, str]:
    """No secrets of the parent, no local time zone; one memory arena, for the cap counts it."""
    kept = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}
    return {**kept, "TZ": "UTC", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}


def _kill_all(workers: set[_Worker], owner: int) -> None:
    """End the workers of a pool that was dropped without `close`; a forked copy ends nothing."""
    if os.getpid() == owner:
        while workers:
            workers.pop().kill()


class SandboxPool:
    """Runs statements in `workers` processes that belong to this object and die with it.

    Thread-safe: `query` blocks its caller, `aquery` does not block the event loop; both wait for
    a free worker. Every statement sees the same database and nothing of another statement.
    `rewrite` is applied to every text first, gold and answer alike (`clock.vital_ranges` for
    EHRSQL).

    Raises UserError when the file is missing, is no SQLite database, or cannot be read immutably
    (write-ahead log, unfinished transaction).
    """

    def __init__(
        self,
        database: Path | str,
        clock: str,
        workers: int = 1,
        limits: Limits | None = None,
        *,
        rewrite: Callable[[str], str] | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError("a sandbox needs at least one worker")
        self.database = Path(database)
        self.clock = check_clock(clock)
        self.limits = limits or Limits()
        self._rewrite = rewrite
        self._config = {
            "uri": database_uri(self.database),
            "clock": clock,
            "memory_bytes": self.limits.memory_bytes,
            "heap_bytes": self.limits.memory_bytes * 3 // 4,
        }
        self._lock = threading.Lock()
        self._probe = threading.Lock()
        self._free: list[_Worker] = []
        self._slots = threading.Semaphore(workers)
        self._all: set[_Worker] = set()
        self._executor: ThreadPoolExecutor | None = None
        self._workers = workers
        self._closed = False
        self._knows_now: bool | None = None
        self._owner = os.getpid()
        check_database(self.database)
        self._finalizer = weakref.finalize(self, _kill_all, self._all, self._owner)
        self._start()

    def _start(self) -> None:
        self._free.extend(self._spawn() for _ in range(self._workers))
        try:
            for worker in self._free:
                greeting = worker.wait_ready()
                if not greeting["ready"]:
                    raise UserError(
                        f"{self.database} cannot be read: {greeting['error']}",
                        "check the file with: sqlite3 FILE 'PRAGMA integrity_check'",
                    )
        except (WorkerDied, TimeoutError) as error:
            self.close()
            raise UserError(
                f"the SQL worker for {self.database} did not start",
                "raise the sandbox's memory_bytes, or run: sentinel doctor CONFIG",
            ) from error
        except UserError:
            self.close()
            raise

    def _spawn(self) -> _Worker:
        worker = _Worker(self._config)
        with self._lock:
            if not self._closed:
                self._all.add(worker)
                return worker
        worker.kill()
        raise RuntimeError(_CLOSED)

    def query(self, sql: str) -> Result:
        """Run one statement and wait for its result. A failure is a Result with `error` set."""
        if os.getpid() != self._owner:
            raise RuntimeError("a sandbox cannot be used in a forked process: make one there")
        text = strip_terminators(sql if self._rewrite is None else self._rewrite(sql))
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            return Result(error="the query is not valid Unicode: it holds half a surrogate pair")
        if size > _MAX_SQL:
            return Result(error=f"the query is longer than {_MAX_SQL} bytes")
        request: dict[str, Any] = {
            "sql": text,
            "plain": None if self._knows_now else plain(text, self.clock),
            "seconds": self.limits.seconds,
            "max_rows": self.limits.max_rows,
            "max_bytes": self.limits.max_bytes,
        }
        with self._slots:
            with self._lock:
                if self._closed:
                    raise RuntimeError(_CLOSED)
                worker = self._free.pop() if self._free else None
            try:
                if worker is None:
                    worker = self._spawn()
                try:
                    result, keep = self._ask(worker, request)
                except WorkerLost:
                    self._retire(worker)
                    worker = self._spawn()
                    result, keep = self._ask(worker, request)
            except BaseException:
                if worker is not None:
                    self._retire(worker)
                raise
            if not keep:
                self._retire(worker)
                # Start the next one now: it gets ready while nobody waits for it.
                worker = self._spawn()
            self._give(worker)
        return result

    def _ask(self, worker: _Worker, request: dict[str, Any]) -> tuple[Result, bool]:
        limits = self.limits
        try:
            if request["plain"] is not None and self._may_know_now(worker):
                request["plain"] = None
            reply = worker.ask(request, limits.seconds + limits.grace_seconds)
        except TimeoutError:
            text = f"timeout: the query ran longer than {limits.seconds:g} s"
            return Result(error=text, seconds=limits.seconds), False
        except WorkerLost:
            if self._closed:
                raise RuntimeError(_CLOSED) from None
            raise
        except WorkerDied:
            if self._closed:
                raise RuntimeError(_CLOSED) from None
            return Result(error="the query ended its worker process (out of memory?)"), False
        return Result.from_parts(reply), "retire" not in reply

    def _may_know_now(self, worker: _Worker) -> bool:
        """May the database itself say `now`? Scanned once, by the worker that needs it first.

        A very large file is not scanned; its statements all take the slower, always right way.
        """
        if self._knows_now is None:
            with self._probe:
                if self._knows_now is None and self.database.stat().st_size > _PROBE_BYTES:
                    self._knows_now = True
                elif self._knows_now is None:
                    ask = {"probe_seconds": _PROBE_SECONDS}
                    reply = worker.ask(ask, _PROBE_SECONDS * 2)
                    self._knows_now = bool(reply["knows_now"])
        return bool(self._knows_now)

    def _give(self, worker: _Worker) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(worker)
                return
        self._retire(worker)

    def _retire(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.kill()

    async def aquery(self, sql: str) -> Result:
        """`query` for coroutines; at most one thread per worker waits."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._workers, "sql-sandbox")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.query, sql)

    def close(self) -> None:
        """End every worker; a query in flight raises RuntimeError. Again: does nothing."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
            busy = self._all.difference(free)
            executor, self._executor = self._executor, None
        for worker in busy:
            worker.stop()  # its thread reads the end of the pipe and collects it
        for worker in free:
            self._retire(worker)
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def database_uri(path: Path) -> str:
    """The read-only, immutable URI of a file, whatever characters its name holds."""
    # Not Path.as_uri: a path that starts with two slashes would name a host.
    return f"file://{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"


def check_database(path: Path) -> None:
    """Raise UserError unless the file is a SQLite database that can be read as it stands."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise UserError(
            f"cannot read the database {path}: {error.strerror}",
            "give the path of a SQLite file, or build the benchmark's data first",
        ) from error
    if not head:
        raise UserError(f"{path} is an empty file", "give the path of a SQLite database")
    if not head.startswith(_MAGIC) or len(head) < 100:
        raise UserError(f"{path} is no SQLite database", "give the path of a SQLite database")
    beside = (path.with_name(path.name + end) for end in ("-wal", "-journal"))
    journals = [name for name in beside if name.exists() and name.stat().st_size]
    if 2 in head[18:20] or journals:
        raise UserError(
            f"{path} is in write-ahead mode or has an unfinished transaction; read-only use "
            "would miss its last changes or fail",
            f"run: sqlite3 '{path}' 'PRAGMA journal_mode=DELETE'",
        )
