"""Temp dirs of our Rays: short names, a lock that dies with its holder, and the sweep of the dead.

Nothing is judged by a process id: nodes that share a `/tmp` (containers, namespaces) number their
processes each for itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PREFIX = "sr"
LOCK = ".in-use"
MAX_TEMP = 40
"""Longest temp dir in characters: Ray's sockets lie below it and may have 107 bytes in all."""
NEW_SECONDS = 60.0
"""A folder without a lock file may still be about to get one for so long."""


@dataclass
class TempDir:
    """A folder of ours under `root`, locked until `remove`."""

    path: Path
    _handle: int

    @classmethod
    def make(cls, number: int | str, root: Path | None = None) -> TempDir:
        """A new folder `sr<number>_<random>`; first, what dead Rays left beside it goes.

        `root` defaults to SENTINEL_RAY_TMP or the system's temp dir, and is replaced by `/tmp`
        where it is too long, missing or not writable.
        """
        root = root or Path(os.environ.get("SENTINEL_RAY_TMP") or tempfile.gettempdir())
        name = f"{PREFIX}{number}_"
        # mkdtemp adds eight characters.
        if len(f"{root}/{name}") + 8 > MAX_TEMP or not os.access(root, os.W_OK | os.X_OK):
            root = Path("/tmp")
        sweep_leftovers(root)
        path = Path(tempfile.mkdtemp(prefix=name, dir=root))
        handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(path, handle)

    def remove(self) -> None:
        """Delete the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def sweep_leftovers(root: Path) -> list[Path]:
    """Remove our temp dirs whose holder is gone; returns what was removed."""
    removed = []
    for folder in root.glob(f"{PREFIX}[0-9]*"):
        if re.fullmatch(rf"{PREFIX}\d+_\w+", folder.name) and _is_dead(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _is_dead(folder: Path) -> bool:
    try:
        found = folder.lstat()
        if not folder.is_dir() or folder.is_symlink() or found.st_uid != os.getuid():
            return False
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return time.time() - found.st_mtime > NEW_SECONDS
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
    except OSError:  # gone meanwhile, or not ours after all
        return False
    return True
