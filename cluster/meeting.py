"""How the ranks of a job find each other: small files in the job's folder on the shared disk.

Each name carries the life of the job, so that what an earlier life left is never believed. Another
node may see a new file late: readers list the folder, which a network file system checks with its
server, and never ask for the one name.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.files import read_json


@dataclass(frozen=True, slots=True)
class Head:
    """Where the cluster is, and the word that lets one in."""

    address: str
    token: str


@dataclass(frozen=True, slots=True)
class End:
    """The command's exit code, or why it never ran."""

    code: int
    cause: str = ""


class Meeting:
    """The files of one life of one job."""

    def __init__(self, folder: Path, life: str) -> None:
        self.folder, self.life = folder, life

    def log(self, rank: int) -> Path:
        """What `ray start` of a rank prints."""
        return self.folder / f"ray-{self.life}-{rank}.log"

    def open(self, head: Head) -> None:
        """The head is about to start; readable by this user only."""
        self._write("head", asdict(head))

    def head(self) -> Head | None:
        """The head, when it has been announced."""
        found = self._read("head")
        return None if found is None else Head(found["address"], found["token"])

    def end(self, end: End) -> None:
        """The work is over: workers leave. The token goes first."""
        self._path("head").unlink(missing_ok=True)
        self._write("end", asdict(end))

    def ended(self) -> End | None:
        """How it ended, once it has."""
        found = self._read("end")
        return None if found is None else End(found["code"], found["cause"])

    def fault(self, rank: int, cause: str) -> None:
        """A rank cannot take part."""
        self._write(f"fault-{rank}", {"cause": cause})

    def faults(self) -> dict[int, str]:
        """Causes by rank."""
        start = f"ray-{self.life}-fault-"
        found = {}
        for name in self._names():
            if name.startswith(start) and name.endswith(".json"):
                kind = name.removeprefix(f"ray-{self.life}-").removesuffix(".json")
                value = self._read(kind)
                if value is not None:
                    found[int(kind.removeprefix("fault-"))] = str(value["cause"])
        return found

    def _path(self, kind: str) -> Path:
        return self.folder / f"ray-{self.life}-{kind}.json"

    def _names(self) -> list[str]:
        try:
            return [path.name for path in self.folder.iterdir()]
        except OSError:
            return []

    def _read(self, kind: str) -> dict[str, Any] | None:
        path = self._path(kind)
        if path.name not in self._names():
            return None
        try:
            return read_json(path)
        except OSError:
            return None

    def _write(self, kind: str, value: dict[str, Any]) -> None:
        path = self._path(kind)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        # From its first byte on nobody else may read it: it may hold the token.
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
