"""What a query gave: typed rows, or one line of error."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Value = None | int | float | str | bytes
_EXACT_INT = 2**53
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Result:
    """An executed query.

    `rows` hold SQLite's five types as None, int, float, str, bytes. `error` is None or one line,
    and then there are no rows. `truncated` says that the row or byte cap cut the rows; such a
    result is incomplete and equals nothing. `seconds` is the time the worker spent; it takes no
    part in equality or in the JSON, because it differs from run to run.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()
    error: str | None = None
    truncated: bool = False
    seconds: float = field(default=0.0, compare=False)

    @property
    def n_rows(self) -> int:
        """Rows that came back: all of them unless `truncated`."""
        return len(self.rows)

    @property
    def n_cols(self) -> int:
        """Columns, also of a result without rows."""
        return len(self.columns)

    def to_json(self) -> str:
        """Pure ASCII JSON that keeps every type; never a bare NaN or Infinity.

        Integers beyond 2^53 are {"int": "…"}, infinities {"float": "inf"}, blobs {"blob": "hex"},
        so that a reader with double-precision numbers only loses nothing either. A text with
        surrogates, which no database holds but a test or a log may, is {"utf32": "hex"}: JSON
        would join two halves.

        >>> Result(("n",), ((2**60,), (None,))).to_json()
        '{"columns":["n"],"rows":[[{"int":"1152921504606846976"}],[null]]}'
        """
        data: dict[str, Any] = {
            "columns": list(self.columns),
            "rows": [[_encode(value) for value in row] for row in self.rows],
        }
        if self.error is not None:
            data["error"] = self.error
        if self.truncated:
            data["truncated"] = True
        return json.dumps(data, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """The result that `to_json` wrote, exactly; raises ValueError on any other text."""
        data = json.loads(text)
        try:
            return cls.from_parts(data)
        except (KeyError, TypeError, AttributeError) as cause:
            raise ValueError(f"not a result: {cause}") from cause

    @classmethod
    def from_parts(cls, data: dict[str, Any]) -> Result:
        """The result from decoded JSON, as a worker sends it."""
        return cls(
            columns=tuple(data["columns"]),
            rows=decode_rows(data["rows"]),
            error=data.get("error"),
            truncated=bool(data.get("truncated", False)),
            seconds=float(data.get("seconds", 0.0)),
        )


def decode_rows(rows: Sequence[Sequence[Any]]) -> tuple[tuple[Value, ...], ...]:
    """Rows of JSON cells as typed rows."""
    return tuple(
        tuple([_decode(cell) if type(cell) is dict else cell for cell in row]) for row in rows
    )


def _encode(value: Value) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) <= _EXACT_INT else {"int": str(value)}
    if isinstance(value, float):
        return value if value - value == 0 else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if value is not None and not value.isascii() and _SURROGATE.search(value):
        return {"utf32": value.encode("utf-32-le", "surrogatepass").hex()}
    return value


def _decode(cell: dict[str, str]) -> Value:
    ((kind, text),) = cell.items()
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "blob":
        return bytes.fromhex(text)
    if kind == "utf32":
        return bytes.fromhex(text).decode("utf-32-le", "surrogatepass")
    raise ValueError(f"not a result: unknown cell type {kind!r}")
