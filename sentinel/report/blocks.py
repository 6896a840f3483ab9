"""What a page is made of: data (on disk), and views of it (on the page).

A `Data` is a list of flat rows with declared columns; every table and every figure of the page
has one, and it is written as `NAME.csv` beside the page. A view shows no number that its data lack.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
DASH = "—"


@dataclass(frozen=True, slots=True)
class Data:
    """Flat rows as they go to disk.

    Undefined is None, never NaN; why it is undefined is said in the column `note`, if there is one.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]

    def to_csv(self) -> str:
        """RFC 4180 text: a header, then a line per row; empty where undefined, floats exact."""
        lines = [_line(self.columns)]
        lines += [_line([_plain(row.get(c)) for c in self.columns]) for row in self.rows]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: main text, a second line in small print, and why it is undefined (a footnote)."""

    text: str
    sub: str = ""
    reason: str = ""
    strong: bool = False
    href: str = ""
    """Anchor on the page that the text leads to, without `#`."""


@dataclass(frozen=True, slots=True)
class Head:
    """A column of a table view. `number` right-aligns; `group` is a heading over neighbours."""

    title: str
    cell: Callable[[Row], Cell | str]
    number: bool = True
    group: str = ""
    varied: bool = False
    """Left out where every row says the same."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table on the page, with footnotes for its undefined cells."""

    data: Data
    title: str
    heads: tuple[Head, ...]
    notes: tuple[str, ...] = ()
    rows: Sequence[Row] | None = None
    """Rows to show where they differ from the rows on disk (pivoted, or with a summary line)."""
    anchor: str = ""
    """Where links to it lead, such as `table-4`; made by us and never from data."""
    kind: str = field(default="table", init=False)

    @property
    def shown(self) -> list[Head]:
        """The columns that are shown."""
        rows = self.data.rows if self.rows is None else self.rows

        def texts(head: Head) -> set[str]:
            cells = [head.cell(row) for row in rows]
            return {c if isinstance(c, str) else c.text for c in cells} - {""}

        return [h for h in self.heads if not h.varied or len(texts(h)) > 1]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Heading and span of each run of columns; empty when no column has a heading."""
        if not any(h.group for h in self.shown):
            return []
        spans: list[tuple[str, int]] = []
        for head in self.shown:
            if spans and spans[-1][0] == head.group and head.group:
                spans[-1] = (head.group, spans[-1][1] + 1)
            else:
                spans.append((head.group, 1))
        return spans

    def body(self) -> tuple[list[list[tuple[Cell, str]]], list[tuple[str, str]]]:
        """Cells with their footnote letters, and the footnotes (letter, reason)."""
        letters: dict[str, str] = {}
        lines, heads = [], self.shown
        for row in self.data.rows if self.rows is None else self.rows:
            line = []
            for head in heads:
                cell = head.cell(row)
                cell = Cell(cell) if isinstance(cell, str) else cell
                mark = ""
                if cell.reason:
                    mark = letters.setdefault(cell.reason, _letter(len(letters)))
                line.append((cell, mark))
            lines.append(line)
        return lines, [(letter, reason) for reason, letter in letters.items()]


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure on the page: SVG text, and the data behind every mark in it."""

    data: Data
    title: str
    svg: str
    caption: str
    anchor: str = ""
    kind: str = field(default="figure", init=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values: settings, provenance."""

    title: str
    items: tuple[tuple[str, str], ...]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page; `id` is the anchor, made by us and never from data."""

    id: str
    title: str
    lead: str
    blocks: tuple[TableView | FigureView | Facts, ...]


def visible(text: object) -> str:
    """Text with control, format and surrogate characters spelt out.

    Right-to-left marks must not reorder the page, a lone surrogate cannot be written as UTF-8.
    """
    return "".join(
        f"\\u{ord(c):04x}" if unicodedata.category(c) in {"Cc", "Cf", "Cs"} else c
        for c in str(text)
    )


def undefined(reason: str) -> Cell:
    """The dash, with its reason as a footnote."""
    return Cell(DASH, reason=reason)


def signed(value: float | None, reason: str = "undefined", digits: int = 3) -> Cell | str:
    """A score with its sign: +0.240."""
    return undefined(reason) if value is None else f"{value:+.{digits}f}".replace("-", "−")


def number(value: float | None, reason: str = "undefined", digits: int = 3) -> Cell | str:
    """A plain number with fixed digits."""
    return undefined(reason) if value is None else f"{value:.{digits}f}".replace("-", "−")


def percent(value: float | None, reason: str = "undefined", digits: int = 1) -> Cell | str:
    """A share in per cent."""
    return undefined(reason) if value is None else f"{100 * value:.{digits}f} %".replace("-", "−")


def count(value: int | None, reason: str = "undefined") -> Cell | str:
    """A whole number, thousands apart."""
    return undefined(reason) if value is None else f"{value:,}"


def seconds(value: float | None, reason: str = "not measured") -> Cell | str:
    """A time in the unit that reads best."""
    if value is None:
        return undefined(reason)
    if value >= 5400:
        return f"{value / 3600:.1f} h"
    return f"{value / 60:.1f} min" if value >= 90 else f"{value:.1f} s"


def span(low: float | None, high: float | None, digits: int = 3) -> str:
    """An interval in brackets, or nothing."""
    if low is None or high is None:
        return ""
    return f"[{low:+.{digits}f}, {high:+.{digits}f}]".replace("-", "−")


def text(key: str) -> Callable[[Row], Cell | str]:
    """A cell function for a column of text."""

    def cell(row: Row) -> Cell | str:
        value = row.get(key)
        return undefined("not recorded") if value is None else visible(value)

    return cell


def _line(values: Sequence[Any]) -> str:
    text = io.StringIO()
    # The writer quotes only the line ends that it knows of, and a name may hold either.
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n")


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if value != value else repr(value)
    # A lone surrogate cannot be written as UTF-8; everything else goes out as it is.
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _letter(index: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return letters[index] if index < 26 else f"{letters[index // 26 - 1]}{letters[index % 26]}"
