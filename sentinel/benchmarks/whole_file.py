"""Files of benchmarks: written whole or not at all, and told apart from what replaces them."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[tuple[str, int, int, int], ...]


def stamp(*paths: Path) -> Stamp:
    """What tells files from those that were there before: name, times and size of each, and of
    every file in a folder; a file that is missing has none. For caches, not for hashes."""
    files = [f for p in paths for f in (sorted(p.rglob("*")) if p.is_dir() else [p]) if f.is_file()]
    found = ((str(f), f.stat()) for f in files)
    return tuple((f, s.st_mtime_ns, s.st_ctime_ns, s.st_size) for f, s in found)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text beside `path`, then rename it; folders are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
