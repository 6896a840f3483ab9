"""The held-out ledger: who has looked at a held-out pool, for every run there ever was.

It lies outside `runs/NAME`, beside the pools' manifest, so that a new run directory does not
forget. The same monitor again is a replay: identical, allowed. Another needs a stated reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import files
from sentinel.errors import UserError

FOLDER = "ledgers"
SWEEP = "sweep-"
"""How the run directories within the folder of a sweep begin."""


@dataclass(frozen=True, slots=True)
class Looks:
    """What the ledger knows about one (benchmark, manifest, agent)."""

    evaluations: int
    """Lines, replays included."""
    monitors: tuple[str, ...]
    """Distinct monitor hashes, in order of their first look."""
    reasons: tuple[str, ...]
    """Reasons given for each monitor after the first."""


class Ledger:
    """Append-only JSONL files, one per benchmark and manifest, under `folder`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()

    @classmethod
    def beside(cls, run_root: Path | str) -> Ledger:
        """The default place: `ledgers/` next to the folder of runs (`runs/NAME` → `ledgers`).

        The elements of a sweep (`runs/NAME/sweep-…`) share it with all other runs.
        """
        root = Path(run_root).absolute()
        if root.name.startswith(SWEEP):
            root = root.parent
        return cls(root.parent.parent / FOLDER)

    def path(self, benchmark: str, manifest: str) -> Path:
        """The file of one benchmark and manifest hash."""
        return self.folder / f"{files.safe_name(benchmark)}.{files.safe_name(manifest[:16])}.jsonl"

    def looks(self, benchmark: str, manifest: str, agent: str) -> Looks:
        """Evaluations so far. Raises UserError when a line of the file cannot be read."""
        path = self.path(benchmark, manifest)
        if not path.exists():
            return Looks(0, (), ())
        return _looks(path, path.read_bytes(), manifest, agent)

    def record(
        self,
        benchmark: str,
        manifest: str,
        agent: str,
        monitor: str,
        *,
        run: str,
        again: str | None = None,
    ) -> Looks:
        """Enter an evaluation *before* it happens; returns the state that includes it.

        `manifest` is the hash of the pools, `monitor` of everything that decides. Two processes
        cannot both be the first. Raises UserError for another monitor on the same pool and agent
        without a reason in `again`.
        """
        path = self.path(benchmark, manifest)
        with _locked(path) as handle:
            data = os.pread(handle, os.fstat(handle).st_size, 0)
            whole = data.rfind(b"\n") + 1
            if whole != len(data):  # a writer died in mid-line, before it evaluated anything
                os.ftruncate(handle, whole)
            before = _looks(path, data[:whole], manifest, agent)
            replay = monitor in before.monitors
            reason = (again or "").strip() or None
            if before.monitors and not replay and reason is None:
                raise UserError(
                    f"the held-out pool of {benchmark}/{agent} was already evaluated with "
                    f"{len(before.monitors)} other monitor(s) ({path})",
                    "another look needs a reason: --again 'WHY' (the report prints it)",
                )
            entry = {
                "at": time.time(),
                "benchmark": benchmark,
                "manifest": manifest,
                "agent": agent,
                "monitor": monitor,
                "run": run,
                "replay": replay,
                "reason": None if replay or not before.monitors else reason,
            }
            os.write(handle, files.canonical(entry).encode() + b"\n")
            os.fsync(handle)
        files.sync_folder(path.parent)
        return self.looks(benchmark, manifest, agent)


def _looks(path: Path, data: bytes, manifest: str, agent: str) -> Looks:
    entries = [e for e in _entries(path, data) if (e["manifest"], e["agent"]) == (manifest, agent)]
    monitors = tuple(dict.fromkeys(str(e["monitor"]) for e in entries))
    reasons = tuple(str(e["reason"]) for e in entries if e.get("reason"))
    return Looks(len(entries), monitors, reasons)


def _entries(path: Path, data: bytes) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entry = json.loads(line)
            entry["manifest"], entry["agent"], entry["monitor"]
        except (ValueError, KeyError, TypeError) as error:
            # A ledger that forgets is no ledger: nothing is skipped.
            raise UserError(
                f"line {number} of the held-out ledger {path} cannot be read",
                "restore the file from a backup, or mend that line by hand",
            ) from error
        yield entry


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)
