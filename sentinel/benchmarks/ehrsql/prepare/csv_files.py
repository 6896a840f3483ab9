"""The CSVs of MIMIC-III as a stream of Arrow batches: plain, `.gz` or `.xz`, whole or in parts."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sentinel.benchmarks.base import DataError

BLOCK = 2 << 20
"""Bytes of CSV text per batch, of which Arrow reads at most 32 ahead: what bounds memory."""
NULLS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Texts that are no value, as the authors' own reader had it."""
_OPEN: Mapping[str, Callable[[IO[bytes]], Any]] = {
    "": lambda raw: io.BufferedReader(raw, 1 << 20),
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".xz": lambda raw: lzma.LZMAFile(raw),  # noqa: SIM115  (closed by the caller)
}
Report = Callable[[str], None]


def find_tables(folder: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    """The file of each table, or its numbered parts in order; names in any case.

    Raises DataError that names every missing table, or a table that lies there twice.
    """
    if not folder.is_dir():
        raise DataError(f"no folder {folder}", "name the folder of MIMIC-III's CSV files")
    found: dict[str, dict[int, list[Path]]] = {name: {} for name in names}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"(\w+?)(?:_(\d+))?\.csv(?:\.gz|\.xz)?", path.name.lower())
        if match and match.group(1) in found:
            found[match.group(1)].setdefault(int(match.group(2) or 0), []).append(path)
    missing = [name for name, parts in found.items() if not parts]
    if missing:
        raise DataError(
            f"{folder} lacks {', '.join(f'{n}.csv' for n in missing)}",
            "put MIMIC-III's CSV files there (plain, .gz or .xz)",
        )
    for name, parts in found.items():
        twice = [paths for paths in parts.values() if len(paths) > 1]
        if twice or (0 in parts and len(parts) > 1):
            paths = [p.name for group in parts.values() for p in group]
            raise DataError(f"{name} lies there twice: {', '.join(paths)}", "keep one of them")
    return {name: [parts[n][0] for n in sorted(parts)] for name, parts in found.items()}


def batches(
    paths: Sequence[Path],
    columns: Sequence[str],
    report: Report | None = None,
    block: int = BLOCK,
) -> Iterator[pa.Table]:
    """The named columns as text, lower case and without outer blanks; nulls by `NULLS`.

    Memory holds a batch, never a file. `report` hears how far the reading is. Raises DataError for
    a file that is cut short, not UTF-8, no CSV, or lacks a column.
    """
    rows = 0
    for path in paths:
        size = max(path.stat().st_size, 1)
        with ExitStack() as stack:
            raw = stack.enter_context(path.open("rb", buffering=0))
            suffix = path.suffix.lower() if path.suffix.lower() in _OPEN else ""
            stream = stack.enter_context(_OPEN[suffix](raw))
            try:
                for table in _read(path, stream, columns, block):
                    rows += table.num_rows
                    if report is not None:
                        report(f"{path.name}: {100 * raw.tell() / size:3.0f} %, {rows:,} rows")
                    yield table
            except (pa.ArrowInvalid, EOFError, lzma.LZMAError, zlib.error, OSError) as error:
                why = str(error).splitlines()[0][:200]
                raise DataError(f"{path} cannot be read: {why}", "get the file again") from error


def _read(path: Path, stream: Any, columns: Sequence[str], block: int) -> Iterator[pa.Table]:
    first = stream.readline()
    names = [n.strip().strip('"').lower() for n in first.decode("utf-8", "replace").split(",")]
    lacks = [c for c in columns if c not in names]
    if lacks:
        raise DataError(
            f"{path} has no column {', '.join(lacks)} (it has: {', '.join(names)[:200]})",
            "name the folder of MIMIC-III's own CSV files",
        )
    try:
        reader = pyarrow.csv.open_csv(
            stream,
            pyarrow.csv.ReadOptions(block_size=block, column_names=names, use_threads=False),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=list(columns),
                null_values=list(NULLS),
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return
        raise
    for batch in reader:
        yield pa.table(
            {name: pc.utf8_lower(pc.utf8_trim_whitespace(batch.column(name))) for name in columns}
        )
