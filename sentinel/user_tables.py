"""Tables that users bring: read from Parquet or CSV, types checked with every fault at once."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentinel.errors import UserError
from sentinel.tables import Table

NULLS = ["", "null", "NULL", "None", "nan", "NaN", "NA"]


def read(path: Path, spec: Table) -> pa.Table:
    """A table from Parquet or CSV (text columns stay text, leading zeros included).

    Raises UserError for a file that is missing, of another kind, or cannot be read.
    """
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    kind = path.suffix.lower()
    if kind not in (".parquet", ".pq", ".csv"):
        raise UserError(f"{path} is neither .parquet nor .csv", "convert the table to one of them")
    try:
        with path.open("rb") as file:
            if kind != ".csv":
                return pq.read_table(file)
            options = csv.ConvertOptions(
                column_types={name: column.type for name, column in spec.columns.items()},
                null_values=NULLS,
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            )
            return csv.read_csv(file, convert_options=options)
    except FileNotFoundError as error:
        raise UserError(f"no file {path}", f"name a {spec.name} table (Parquet or CSV)") from error
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}", "write the table again") from error


def typed(
    table: pa.Table, spec: Table, optional: Collection[str] = ()
) -> tuple[pa.Table, list[str]]:
    """The declared columns in their declared types, and every fault found on the way.

    Integers that are whole floats are accepted; text columns take nothing but text, because a
    number would have lost its leading zeros.
    """
    declared = spec.columns
    names = table.column_names
    faults = []
    missing = [n for n in declared if n not in optional and n not in names]
    unknown = [n for n in dict.fromkeys(names) if n not in declared]
    twice = sorted({n for n in names if names.count(n) > 1})
    for what, found in (("missing", missing), ("unknown", unknown), ("repeated", twice)):
        if found:
            faults.append(f"{what} columns: {', '.join(found)}")
    columns = {}
    for name in (n for n in dict.fromkeys(names) if n in declared and n not in twice):
        wanted = declared[name].type
        values = table.column(name)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            if pa.types.is_string(wanted) and not (
                pa.types.is_string(values.type)
                or pa.types.is_large_string(values.type)
                or (pa.types.is_null(values.type) and declared[name].nullable)
            ):
                raise pa.ArrowInvalid(f"is {values.type}, not text (it would lose leading zeros)")
            columns[name] = values.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            faults.append(f"{name} cannot be read as {wanted}: {str(error).splitlines()[0]}")
            continue
        if not declared[name].nullable and values.null_count:
            faults.append(f"{name} has {values.null_count} nulls")
    return pa.table(columns), faults


def dumps(value: Any) -> str:
    """Readable JSON in one fixed form, so that equal results are equal bytes."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=True) + "\n"
