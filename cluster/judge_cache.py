"""Verdicts by content: append-only journals in a folder that any number of runs share.

A verdict is there, whole and on its way to the disk, before it is used; SIGKILL loses the requests
in flight. Only verdicts are kept: what could not be judged is asked again.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.files import safe_name
from cluster.journal import Journal, Reader
from sentinel.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """One verdict: of which content, what the judge replied, what it cost, who paid for it.

    `engine` is the server, the model and the client's version. `payer` is the run directory and
    episode that asked, so that a cost is counted once.

    """

    key: str
    label: str
    correct: bool
    reply: str
    engine: str
    cost_usd: float | None
    payer: tuple[str, str, str, str]
    at: float


class VerdictCache:
    """The verdicts of a folder, and this process's own journal in it.

    Raises UserError where the folder is none or takes no file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise UserError(
                f"the judge's cache {folder} cannot be used ({error.strerror})",
                "name another folder: judge.cache_dir",
            ) from error
        name = f"{time.time_ns():020d}-{safe_name(socket.gethostname())}-{os.getpid()}.jsonl"
        self._journal = Journal(folder / name)
        self._known: dict[str, Record] = {}
        self.reload()

    def reload(self) -> None:
        """Read what all journals hold by now; a bad line costs that line and is logged."""
        reader = Reader(_decode, lambda record: record.key)
        for record in reader.read(sorted(self.folder.glob("*.jsonl"))):
            self._known.setdefault(record.key, record)
        for line in reader.account.bad_lines:
            log.warning("judge's cache: %s", line)

    def get(self, key: str) -> Record | None:
        """The verdict on this content, if it is known."""
        return self._known.get(key)

    def add(self, record: Record) -> None:
        """Keep a verdict. Raises JournalBroken when the disk does not take it."""
        self._journal.append(json.dumps(asdict(record), sort_keys=True))
        self._known[record.key] = record

    def close(self) -> None:
        """Sync."""
        self._journal.close()


def _decode(line: str) -> Record:
    data = json.loads(line)
    payer = data["payer"]
    if not isinstance(data["correct"], bool) or len(payer) != 4:
        raise ValueError("no verdict")
    cost = data["cost_usd"]
    return Record(
        key=str(data["key"]),
        label=str(data["label"]),
        correct=data["correct"],
        reply=str(data["reply"]),
        engine=str(data["engine"]),
        cost_usd=None if cost is None else float(cost),
        payer=(str(payer[0]), str(payer[1]), str(payer[2]), str(payer[3])),
        at=float(data["at"]),
    )
