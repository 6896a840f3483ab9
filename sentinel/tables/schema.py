"""What a declared table is: columns with types, a key, and how each column is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

VERSION = "1"


class TableError(ValueError):
    """A table that does not have the declared columns, types or keys."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Arrow type, a line of documentation, and how it is compared."""

    type: pa.DataType
    doc: str
    nullable: bool = False
    kind: str = "exact"  # exact | numeric | half | volatile | ranked


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table: ordered columns and the key that sorts and identifies its rows."""

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, Column]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the table's name and version in its metadata."""
        fields = [pa.field(name, c.type, nullable=c.nullable) for name, c in self.columns.items()]
        return pa.schema(fields, metadata={"table": self.name, "version": VERSION})

    def from_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows (mappings with exactly the declared keys) as a checked table.

        Raises TableError on an unknown or missing key: `pa.Table.from_pylist` would drop them.
        """
        for row in rows:
            if row.keys() != self.columns.keys():
                self._refuse(row.keys())
        try:
            columns = [
                pa.array([row[name] for row in rows], type=c.type)
                for name, c in self.columns.items()
            ]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise TableError(f"table {self.name}: {error}") from error
        return self.check(pa.Table.from_arrays(columns, schema=self.schema))

    def empty(self) -> pa.Table:
        """No rows, all columns."""
        return self.schema.empty_table()

    def check(self, table: pa.Table, *, extra: Iterable[str] = ()) -> pa.Table:
        """The same table, columns in declared order; raises TableError with every fault at once."""
        allowed = set(extra)
        names = [n for n in table.column_names if n not in allowed]
        if set(names) != set(self.columns) or len(names) != len(set(names)):
            self._refuse(names)
        faults = []
        for name, column in self.columns.items():
            values = table.column(name)
            if values.type != column.type:
                faults.append(f"{name} is {values.type}, not {column.type}")
            elif not column.nullable and values.null_count:
                faults.append(f"{name} has {values.null_count} nulls")
        if faults:
            raise TableError(f"table {self.name}: {'; '.join(faults)}")
        return table.select(list(self.columns)).cast(self.schema)

    def sort(self, table: pa.Table) -> pa.Table:
        """Rows in key order, whatever order the workers finished in."""
        return table.sort_by([(name, "ascending") for name in self.key])

    def _refuse(self, names: Iterable[str]) -> None:
        names = list(names)
        missing = [n for n in self.columns if n not in names]
        unknown = [n for n in names if n not in self.columns]
        twice = sorted({n for n in names if names.count(n) > 1})
        parts = [
            f"{what} columns: {', '.join(found)}"
            for what, found in (("missing", missing), ("unknown", unknown), ("repeated", twice))
            if found
        ]
        raise TableError(
            f"table {self.name}: {'; '.join(parts)} (declared: {', '.join(self.columns)})"
        )


STRING, INT, FLOAT, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
INTS, FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())
STRINGS = pa.list_(pa.string())


def exact(type: pa.DataType, doc: str, nullable: bool = False) -> Column:
    """A column that agrees exactly or the runs differ."""
    return Column(type, doc, nullable)


def maybe(type: pa.DataType, doc: str) -> Column:
    """An exact column that may be null."""
    return Column(type, doc, nullable=True)


def numeric(type: pa.DataType, doc: str) -> Column:
    """A column of floats with a tolerance; null is undefined."""
    return Column(type, doc, nullable=True, kind="numeric")


def volatile(type: pa.DataType, doc: str) -> Column:
    """A column that never takes part in a comparison."""
    return Column(type, doc, nullable=True, kind="volatile")


WHERE = {
    "benchmark": exact(STRING, "name of the benchmark"),
    "agent": exact(STRING, "name of the agent"),
}
EPISODE = {**WHERE, "episode_id": exact(STRING, "benchmark/agent/task_id/rollout")}
