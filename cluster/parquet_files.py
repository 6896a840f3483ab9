"""Parquet tables larger than what should be held at once, and hashes of what tables hold."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import files


def write_parts(path: Path, parts: Iterable[pa.Table]) -> tuple[str, int]:
    """Tables of one schema as one Parquet file, atomically, holding one of them at a time.

    Returns the sha256 of the file and its rows. Raises ValueError where there is no part.
    """
    found: list[tuple[str, int]] = []

    def write(file: IO[bytes]) -> None:
        writer, rows = None, 0
        try:
            for part in parts:
                writer = writer or pq.ParquetWriter(file, part.schema, compression="zstd")
                writer.write_table(part)
                rows += part.num_rows
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ValueError(f"no part for {path}")
        file.flush()
        found.append((files.file_hash(Path(file.name)), rows))

    files.write_atomic(path, write)
    return found[0]


def content_hash(table: pa.Table) -> str:
    """sha256 of a table's Arrow data, however it is chunked."""
    sink = _HashSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.state.hexdigest()


class _HashSink(io.RawIOBase):
    """A file that only remembers the hash of what was written."""

    def __init__(self) -> None:
        self.state = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.state.update(view)
        return view.nbytes
