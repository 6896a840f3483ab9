"""Literals of a query, and whether the agent had seen them before it committed.

A literal that stands neither in the question nor in any observed result is the signature of a
fabrication (the paper, Appendix I). Numbers match by value (`5`, `5.0` and `'5'` are one), text as
whole words without regard to case; clock constants are exempt: `'now'`, the database's own clock
and its date, and the format strings and modifiers that a date function takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from sqlglot import exp

_DATE_FUNCTIONS = frozenset(
    {"date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"}
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)|(?<![\w.])\.\d+(?!\w)")
_FRAME = re.compile(r"\d+\+? rows x \d+ cols|\.\.\. \d+\+? more rows")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True, slots=True)
class Literal:
    """One literal: its text, its absolute value if it is a number, whether it is exempt."""

    text: str
    number: Decimal | None
    exempt: bool = False


def literals_of(query: exp.Expression) -> Iterator[Literal]:
    """Every literal of a parsed query, in no particular order; empty strings carry nothing."""
    for node in query.find_all(exp.Literal):
        text = str(node.this)
        parent = node.parent
        if isinstance(parent, exp.Like) and node.arg_key == "expression":
            text = text.strip("%_")
        elif isinstance(parent, exp.Glob) and node.arg_key == "expression":
            text = text.strip("*?")
        if text.strip():
            yield Literal(text, _number(text), _date_syntax(node))


def quoted_literal(column: exp.Column) -> Literal:
    """The string that SQLite makes of an unresolvable double-quoted name."""
    return Literal(column.name, _number(column.name), _date_syntax(column))


class Evidence:
    """Text the agent has seen: the question, then one observation after another."""

    def __init__(self, clock: str = "", texts: Iterable[str] = ()) -> None:
        self._words = ""
        self._numbers: set[Decimal] = set()
        self._clock = {"now", clock.lower(), clock[:10].lower(), clock[:16].lower()} - {""}
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """One more text; only what was shown before the commit belongs here."""
        self._words += "\n" + _squeeze(text)
        for source in {text, _GROUPED.sub("", text)}:
            for match in _NUMBER.findall(source):
                value = _number(match)
                if value is not None:
                    self._numbers.add(value)

    def add_result(self, observation: str) -> None:
        """The rows of a result as the agent was shown it: no size, no column names, no counts."""
        lines = [line for line in observation.splitlines() if not _FRAME.match(line)]
        self.add("\n".join(lines).replace("''", "'"))

    def holds(self, literal: Literal) -> bool:
        """Whether the literal stands in the evidence."""
        if literal.number is not None and literal.number in self._numbers:
            return True
        wanted = re.escape(_squeeze(literal.text))
        return re.search(rf"(?<!\w){wanted}(?!\w)", self._words) is not None

    def ungrounded(self, literals: Sequence[Literal]) -> float:
        """Share of the literals that are neither exempt nor held; 0.0 when there are none."""
        counted = [
            one for one in literals if not one.exempt and _squeeze(one.text) not in self._clock
        ]
        if not counted:
            return 0.0
        return sum(not self.holds(one) for one in counted) / len(counted)


def _squeeze(text: str) -> str:
    return " ".join(text.lower().split())


def _number(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return abs(value) if value.is_finite() else None


def _date_syntax(node: exp.Expression) -> bool:
    """A format string or modifier of a date function (its time value is an ordinary literal)."""
    parent = node.parent
    if isinstance(parent, exp.TimeToStr):
        return node.arg_key == "format"
    if not isinstance(parent, exp.Anonymous) or parent.name.lower() not in _DATE_FUNCTIONS:
        return False
    value_at = 1 if parent.name.lower() == "strftime" else 0
    return node.index != value_at
