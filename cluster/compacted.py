"""One file under `tables/`: rows checked and sorted by key, keys unique, its marker written last.

The marker lies beside it: the stage that wrote it, the rows, the file's hash, and a hash of what it
was made from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import files, parquet_files
from sentinel import tables
from sentinel.errors import UserError

BROKEN = (pa.ArrowException, OSError)
"""What reading a cut or damaged Parquet file raises."""


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A compacted table called `name`, where it lies; it need not exist yet."""

    name: str
    path: Path

    @property
    def source(self) -> str | None:
        """What it was made from; None where there is none, or no marker."""
        return self._marker().get("source")

    def is_made_from(self, source: str) -> bool:
        """Whether it exists, is whole and was made from `source`."""
        marker = self._marker()
        if marker.get("source") != source or not self.path.exists():
            return False
        return files.file_hash(self.path) == marker.get("sha256")

    def write(self, table: pa.Table, *, stage: str, source: str) -> None:
        """Replace it atomically. Raises TableError for wrong columns and repeated keys."""
        table = _sorted(self.name, check(self.name, table))
        self._mark(stage, source, files.write_parquet(self.path, table), table.num_rows)

    def write_in_order(self, parts: Iterator[pa.Table], *, stage: str, source: str) -> None:
        """`write`, of parts that follow one another in key order; one is held at a time.

        Raises TableError also where a part does not begin after the end of the last.
        """
        written = parquet_files.write_parts(self.path, _ascending(self.name, parts))
        self._mark(stage, source, *written)

    def read(self, root: Path) -> pa.Table:
        """The table, checked; raises UserError naming how run directory `root` mends a corrupt
        one."""
        try:
            return check(self.name, files.read_parquet(self.path))
        except (*BROKEN, tables.TableError) as error:
            stage = self._marker().get("stage", "run")
            raise UserError(
                f"table {self.path} is corrupt ({error})",
                f"rebuild it from its parts: sentinel {stage} --run-dir '{root}'",
            ) from error

    @property
    def _marker_path(self) -> Path:
        return self.path.with_suffix(".json")

    def _marker(self) -> dict[str, Any]:
        return files.read_json(self._marker_path) or {}

    def _mark(self, stage: str, source: str, sha: str, rows: int) -> None:
        marker = {"stage": stage, "source": source, "sha256": sha, "rows": rows}
        files.write_json(self._marker_path, marker)


def check(name: str, table: pa.Table) -> pa.Table:
    """`table` as the declared schema has it; raises TableError where its columns are others."""
    spec = tables.find(name, table)
    return table if spec is None else spec.check(table)


def stable_hash(name: str, table: pa.Table, without: Collection[str] = ()) -> str:
    """Hash of the Arrow data but for volatile columns and those of `without`."""
    table = table.drop_columns(list(without))
    spec = tables.find(name, table)
    if spec is not None:
        volatile = [c for c, col in spec.columns.items() if col.kind == "volatile"]
        table = table.drop_columns([c for c in volatile if c not in without])
    return parquet_files.content_hash(table)


def _ascending(name: str, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Parts, each sorted; raises TableError where one does not begin after the end of the last."""
    last: tuple[Any, ...] | None = None
    for part in parts:
        part, spec = _sorted(name, part), tables.find(name, part)
        if spec is not None and part.num_rows:
            ends = part.select(list(spec.key)).take([0, part.num_rows - 1]).to_pylist()
            first, end = (tuple(row.values()) for row in ends)
            if last is not None and first <= last:
                raise tables.TableError(f"table {name}: parts out of order at {first}")
            last = end
        yield part


def _sorted(name: str, table: pa.Table) -> pa.Table:
    spec = tables.find(name, table)
    if spec is None:
        return table
    table = spec.sort(table)
    keys = table.select(list(spec.key))
    if keys.group_by(list(spec.key)).aggregate([]).num_rows != table.num_rows:
        raise tables.TableError(f"table {name}: repeated keys ({', '.join(spec.key)})")
    return table
