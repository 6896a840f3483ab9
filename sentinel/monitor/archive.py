"""A folder that is read only as it was written: every file named, hashed and of a known kind.

`manifest.json` lists each file with its size and sha256 and carries its own hash. A folder that
lacks a file, holds one more, or one of another kind is refused before any of it is opened, so that
a pickle put beside the others is never read.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from sentinel.errors import UserError

FORMAT = 1
MANIFEST = "manifest.json"
KINDS = (".json", ".safetensors", ".skops")
"""Suffixes of files that can be read without running code."""
AGAIN = "export it again: sentinel calibrate"


def write(folder: Path, contents: Mapping[str, bytes | Path], facts: Mapping[str, Any]) -> str:
    """Replace `folder` by these files and a manifest with `facts`; returns the manifest's hash.

    `contents`: relative POSIX name → bytes, or a file to copy. See `replacing`.
    """
    with replacing(folder) as temporary:
        listed = {}
        for name, content in sorted(contents.items()):
            if (fault := _name_fault(name)) is not None:
                raise ValueError(f"{name}: {fault}")
            path = temporary / name
            put(path, content)
            listed[name] = {"sha256": _file_hash(path), "bytes": path.stat().st_size}
        manifest = {**facts, "format": FORMAT, "files": listed}
        digest = content_hash(manifest)
        text = json.dumps({**manifest, "hash": digest}, indent=1, sort_keys=True, allow_nan=False)
        put(temporary / MANIFEST, (text + "\n").encode())
    return digest


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to `put` files into, which then takes the place of `folder` as a whole.

    Everything is flushed under a temporary name first; a process killed at any point leaves the old
    folder, the new one, or (between two renames) none, and never a half. An error leaves the old
    one.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for inner in {temporary, *(p.parent for p in temporary.rglob("*"))}:
            _sync(inner)
        _swap(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def put(path: Path, content: bytes | Path) -> None:
    """Write a new file, or copy one, and flush it; the folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        if isinstance(content, Path):
            with content.open("rb") as source:
                shutil.copyfileobj(source, file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a folder whose files are all there, all known and all unchanged.

    Raises UserError for a missing, damaged or changed manifest, another format, a missing, unknown
    or changed file, one whose kind could run code, and a link.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        digest = manifest.pop("hash")
        listed = {str(name): dict(entry) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"monitor {path} cannot be read ({error})", AGAIN) from error
    if manifest.get("format") != FORMAT:
        raise UserError(
            f"monitor {folder} is of format {manifest.get('format')}, this version reads {FORMAT}",
            AGAIN,
        )
    if content_hash(manifest) != digest:
        raise UserError(f"monitor {path} was changed after it was written", AGAIN)
    for name in sorted(listed):
        if (fault := _name_fault(name)) is not None:
            raise UserError(f"monitor {folder} lists {name}: {fault}", AGAIN)
    refuse_unknown(folder, {MANIFEST, *listed})
    for name, entry in sorted(listed.items()):
        if _file_hash(folder / name) != entry.get("sha256"):
            raise UserError(f"monitor {folder}: {name} was changed after it was written", AGAIN)
    return {**manifest, "hash": digest}


def refuse_unknown(folder: Path, known: set[str]) -> None:
    """Raise UserError unless the folder holds exactly the plain files `known`."""
    found = set()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UserError(f"monitor {folder}: {name} is no plain file", "copy the folder anew")
        if path.is_dir():
            continue
        if name not in known:
            what = "an unknown file" if path.suffix in KINDS else "a file that could run code"
            raise UserError(f"monitor {folder} holds {what}: {name}", f"remove it, or {AGAIN}")
        found.add(name)
    if missing := sorted(known - found):
        raise UserError(f"monitor {folder} lacks {', '.join(missing)}", AGAIN)


def content_hash(value: Any) -> str:
    """sha256 of the canonical JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _name_fault(name: str) -> str | None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or pure.as_posix() != name or name == MANIFEST:
        return "not a name within the folder"
    if pure.suffix not in KINDS:
        return f"files of kind {pure.suffix or '(none)'} could run code and are never read"
    return None


def _swap(new: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.old")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
