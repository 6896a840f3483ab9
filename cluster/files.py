"""Atomic files: temporary name, fsync, rename, fsync of the folder. Nothing else writes run state.

A reader therefore sees the old content or the new one, never a half; a process killed at any point
leaves at most a `.tmp` file behind, which no reader looks at.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from sentinel.errors import UserError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
MAX_NAME = 120
"""Longest quoted name in bytes; longer ones keep a readable head and end in a hash."""


@contextmanager
def no_space(place: Path) -> Iterator[None]:
    """A disk that takes no more as a UserError, whichever file met it first."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise UserError(
            f"cannot write {error.filename or place}: {error.strerror}",
            "make room there and run again: what is finished is kept",
        ) from error


def safe_name(name: str) -> str:
    """`name` as one file name: percent-quoted, no leading `.` or `_`, at most 120 bytes.

    Injective up to a 64-bit hash: spaces, slashes, `=`, `%` and non-ASCII text are quoted, dataset
    readers skip no such file, and 300 characters fit beside a suffix.
    """
    if not name:
        return "%"  # quoting never leaves a bare percent sign
    quoted = quote(name, safe=" ").replace(" ", "%20")
    if quoted[0] in "._~":
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if len(quoted) <= MAX_NAME:
        return quoted
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    head = quoted[: MAX_NAME - 17]
    cut = head.rfind("%", len(head) - 2)  # no half of a %XX at the end
    return f"{head[:cut] if cut > 0 else head}~{digest}"


def name_of(quoted: str) -> str:
    """The name that `safe_name` quoted (its readable head, where it had to be cut)."""
    return "" if quoted == "%" else unquote(quoted)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no NaN: equal values have equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Replace `path` by what `write` puts into a file; a failure leaves the old file alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:60]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A mapping as indented JSON, atomically."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomic(path, lambda file: _write_all(file, text.encode("utf-8", "surrogatepass")))


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in a JSON file; None where it is missing or no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_parquet(path: Path, table: pa.Table) -> str:
    """A table as Parquet, atomically; returns the sha256 of the file."""
    found: list[str] = []

    def write(file: IO[bytes]) -> None:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        found.append(file_hash(Path(file.name)))

    write_atomic(path, write)
    return found[0]


def read_parquet(path: Path) -> pa.Table:
    """One Parquet file, columns as stored; raises pa.ArrowInvalid or OSError when it is cut."""
    # Opened here: a name such as `s3:x` or `benchmark=B` never becomes a URI or a partition.
    with path.open("rb") as file:
        return pq.ParquetFile(file).read()


def append_line(path: Path, line: str) -> None:
    """One line at the end of a shared file, in one write; locked, as other nodes may append too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.lockf(handle, fcntl.LOCK_EX)
        os.write(handle, line.encode("utf-8", "surrogatepass") + b"\n")
    finally:
        os.close(handle)


def _write_all(file: IO[bytes], data: bytes) -> None:
    file.write(data)
