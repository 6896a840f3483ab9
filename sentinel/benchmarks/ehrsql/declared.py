"""Foreign keys that a data set declares in its `tables.json` instead of in its database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.questions import read_bytes
from sentinel.sql.schema import Base, Schema


def declared_keys(path: Path, db_id: str) -> frozenset[frozenset[Base]]:
    """Pairs {(table, column), (table, column)} of one database in a `tables.json` (or `.xz`).

    Raises DataError for a file that is missing, malformed, or does not describe `db_id`.
    """
    remedy = "set tables to the data set's tables.json, or leave it out"
    try:
        found: dict[str, Any] = {d["db_id"]: d for d in json.loads(read_bytes(path))}
        if db_id not in found:
            raise DataError(f"{path} describes {', '.join(found)}, not {db_id}", remedy)
        tables = found[db_id]["table_names_original"]
        columns = found[db_id]["column_names_original"]
        return frozenset(
            frozenset(
                (tables[table].lower(), column.lower())
                for table, column in (columns[one], columns[two])
            )
            for one, two in found[db_id]["foreign_keys"]
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(f"{path} is no table description ({error!r})", remedy) from error


def schema_with(database: Path, tables: Path | None, db_id: str) -> Schema:
    """The schema of a database; `tables` names its foreign keys, else those it declares itself.

    With neither there are none, and the feature `bad_joins` is missing (never zero). Raises
    DataError where `tables` names a column that the database lacks.
    """
    schema = Schema.read(database)
    if tables is None:
        return schema
    keys = declared_keys(tables, db_id)
    known = {(table, column) for table, names in schema.tables.items() for column in names}
    strange = sorted({".".join(side) for pair in keys for side in pair if side not in known})
    if strange:
        raise DataError(
            f"{tables} speaks of {', '.join(strange[:3])}, which {database} lacks",
            "name the tables.json of this database",
        )
    return Schema(schema.tables, keys)
