"""The four dictionary tables; codes are text and keep their leading zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sentinel.benchmarks.ehrsql.prepare.events import ITEMS

COLUMNS: dict[str, tuple[str, ...]] = {
    "d_icd_diagnoses": ("icd9_code", "short_title", "long_title"),
    "d_icd_procedures": ("icd9_code", "short_title", "long_title"),
    "d_labitems": ("itemid", "label"),
    "d_items": ("itemid", "label", "linksto"),
}


def rows(name: str, batches: Iterator[pa.Table]) -> list[list[Any]]:
    """Rows of one dictionary: the first of each code; of D_ITEMS what the event tables link to."""
    found: dict[str, list[Any]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            values: list[Any] = [row[c] for c in COLUMNS[name]]
            if name == "d_items" and (row["label"] is None or row["linksto"] not in ITEMS):
                continue
            if name in ("d_items", "d_labitems"):
                values[0] = int(values[0])
            found.setdefault(values[0], values)
    return [[i, *values] for i, values in enumerate(found.values())]


def remember(name: str, made: Sequence[Sequence[Any]], db: Any) -> None:
    """Keep the codes of a dictionary in the work database, for the events' filters."""
    column = COLUMNS[name][0]
    kind = pa.int64() if column == "itemid" else pa.string()
    db.register("made", pa.table({column: pa.array([row[1] for row in made], kind)}))
    db.execute(f"create table {name} as select * from made")
    db.unregister("made")
