"""A lock file that dies with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType

from sentinel.errors import UserError

HEARTBEAT = 10.0
"""Seconds between touches of a held lock, so that another host can tell a dead holder."""
POLL = 0.2


class FileLock:
    """Exclusive lock on `path`, described inside it by pid and host.

    On one host the kernel frees it with the process, so a dead holder is taken over at once. Where
    the file names another host (a shared file system whose locks may be local), the lock is taken
    over only when the holder's heartbeat has stood still for `patience` seconds: nothing is
    compared between the clocks of two hosts. A Slurm job that was queued again, perhaps on another
    node, takes over from its earlier life at once: one job never runs twice at a time.

    Entering waits up to `wait` seconds for a holder that lives.
    """

    def __init__(
        self, path: Path, what: str, patience: float = 3 * HEARTBEAT, wait: float = 0.0
    ) -> None:
        self.path, self.what, self.patience, self.wait = path, what, patience, wait
        self._handle: int | None = None
        self._released = threading.Event()

    def __enter__(self) -> FileLock:
        deadline = time.monotonic() + self.wait
        while True:
            try:
                return self._take()
            except UserError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL)

    def _take(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(handle)
            os.close(handle)
            raise self._held(holder) from None
        holder = _holder(handle)
        elsewhere = holder.get("host") not in (None, socket.gethostname())
        if elsewhere and not _is_own(holder) and self._beats(handle):
            os.close(handle)
            raise self._held(holder)
        os.ftruncate(handle, 0)
        me = {"pid": os.getpid(), "host": socket.gethostname(), "at": time.time(), **_slurm_job()}
        os.pwrite(handle, json.dumps(me).encode(), 0)
        self._handle = handle
        self._released.clear()
        threading.Thread(target=self._beat, args=(handle,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._released.set()
        handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)  # an empty file names nobody; the file itself stays
            os.close(handle)

    def _beat(self, handle: int) -> None:
        while not self._released.wait(HEARTBEAT):
            try:
                os.utime(self.path)
            except OSError:
                return

    def _beats(self, handle: int) -> bool:
        first, deadline = os.fstat(handle).st_mtime_ns, time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if os.fstat(handle).st_mtime_ns != first:
                return True
            time.sleep(min(0.5, self.patience / 4))
        return False

    def _held(self, holder: dict[str, object]) -> UserError:
        return UserError(
            f"{self.what} is in use by process {holder.get('pid', '?')} "
            f"on {holder.get('host', 'this machine')}",
            f"wait for it or end it; if it is gone for certain: rm '{self.path}'",
        )


def _slurm_job() -> dict[str, str]:
    """The Slurm job of this process, if there is one."""
    job = os.environ.get("SLURM_JOB_ID")
    cluster = os.environ.get("SLURM_CLUSTER_NAME", "")
    return {} if job is None else {"slurm_job": f"{cluster}/{job}"}


def _is_own(holder: dict[str, object]) -> bool:
    """Whether the holder was an earlier life of this process's own Slurm job."""
    return "slurm_job" in holder and holder["slurm_job"] == _slurm_job().get("slurm_job")


def _holder(handle: int) -> dict[str, object]:
    try:
        value = json.loads(os.pread(handle, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
