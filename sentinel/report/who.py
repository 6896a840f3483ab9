"""Which benchmark and agent a row is about: the first columns of nearly every table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sentinel.report import ladder
from sentinel.report.blocks import Cell, Head, Row, text

CellOf = Callable[[Row], Cell | str]


def who(blank: bool = False) -> tuple[Head, Head]:
    """The columns that say which benchmark and agent a row is about; `blank` hides repetitions."""

    def cell(key: str) -> CellOf:
        shown = text(key)
        return lambda row: "" if blank and not row.get("first", True) else shown(row)

    return (
        Head("Benchmark", cell("benchmark"), number=False, varied=True),
        Head("Agent", cell("agent"), number=False),
    )


def first_of_each(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows with `first`: whether the row begins another agent."""
    names = [ladder.name_of(row) for row in rows]
    return [
        {**row, "first": i == 0 or names[i] != names[i - 1]}
        for i, row in enumerate(rows)
    ]  # fmt: skip
