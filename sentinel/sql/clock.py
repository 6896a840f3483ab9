"""The database's clock and the benchmark's placeholders, as text.

The sandbox does not need `bind`: its workers replace SQLite's functions of time, so that every
way to say now is the clock. `bind` is for a plain SQLite or another reader of the same query.
"""

from __future__ import annotations

import re

from sentinel.errors import UserError
from sentinel.sql.lexer import Token, tokens

_FORM = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_TIME_FUNCTIONS = frozenset({"date", "time", "datetime", "julianday", "unixepoch"})
_KEYWORDS = frozenset({"current_time", "current_date", "current_timestamp"})
_TIME_WORD = re.compile("date|time|julianday|unixepoch", re.IGNORECASE)
_NOWS = frozenset({"now", "subsec", "subsecond"})
# Words before a parenthesis that cannot make a text which none of their arguments is.
_INERT = frozenset(
    (
        *("date", "time", "datetime", "julianday", "unixepoch"),
        *("count", "sum", "total", "avg", "min", "max", "abs", "round", "length", "coalesce"),
        *("ifnull", "nullif", "iif", "cast", "dense_rank", "rank", "row_number"),
        *("in", "exists", "not", "and", "or", "on", "when", "then", "else", "case", "by", "over"),
        *("as", "from", "join", "select", "distinct", "where", "having", "limit", "between"),
        *("values", "is", "like", "using", "union", "all", "except", "intersect"),
    )
)
# The spots of a text that decide whether it is plain; all between them is inert. A comment may hide
# anything between a name and its parenthesis: such a text is not plain.
_SPOT = re.compile(
    r"""
      (?P<format>(?<![\w$])(?P<open>strftime\s*\(\s*)(?P<literal>'(?:[^']|'')*')
          (?P<rest>\s*\)|\s*,\s*'now'(?=\s*[,)])|(?=\s*,)))
    | (?P<time>(?<![\w$])(?P<name>(?:date|time|datetime|julianday|unixepoch)\s*\(\s*)
          (?P<now>\)|'now'(?=\s*[,)])))
    | (?P<call>(?<![\w$])[^\W\d][\w$]*\s*\()
    | (?P<literal_>[xX]?'(?:[^']|'')*')
    | (?P<doubt>--|/\*|["`\[\]|\\]|->|')
    """,
    re.VERBOSE | re.IGNORECASE,
)
VITAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}
"""EHRSQL's normal ranges; the placeholders are `<name>_lower` and `<name>_upper`."""

_VITALS = {
    f"{name}_{side}": repr(value)
    for name, pair in VITAL_RANGES.items()
    for side, value in zip(("lower", "upper"), pair, strict=True)
}
VITAL_NAMES = frozenset(_VITALS)
"""The placeholders that `vital_ranges` replaces."""


def check_clock(clock: str) -> str:
    """The clock as given; raises UserError unless it is a real time `YYYY-MM-DD HH:MM:SS`."""
    if not _FORM.fullmatch(clock) or not _exists(clock):
        raise UserError(
            f"clock {clock!r} is not a time", "write it as YYYY-MM-DD HH:MM:SS, without T or Z"
        )
    return clock


def _exists(clock: str) -> bool:
    year, month, day = int(clock[:4]), int(clock[5:7]), int(clock[8:10])
    hour, minute, second = int(clock[11:13]), int(clock[14:16]), int(clock[17:19])
    return (
        1 <= month <= 12
        and 1 <= day <= days_in_month(year, month)
        and hour < 24
        and minute < 60
        and second < 60
    )


def days_in_month(year: int, month: int) -> int:
    """Days of a month in the Gregorian calendar (2100 is not a leap year)."""
    if month == 2:
        return 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return 30 if month in (4, 6, 9, 11) else 31


def vital_ranges(sql: str) -> str:
    """The text with EHRSQL's vital-range placeholders replaced by their numbers.

    Only whole unquoted names that stand for a column are touched, in gold and answer alike.

    >>> vital_ranges("valuenum between sao2_lower and sao2_upper")
    'valuenum between 95.0 and 100.0'
    """
    if "_lower" not in sql.lower() and "_upper" not in sql.lower():
        return sql
    parts: list[str] = []
    before: Token | None = None
    for token in tokens(sql):
        value = _VITALS.get(token.text.lower()) if token.kind == "word" else None
        parts.append(token.text if value is None or _qualified(before) else value)
        before = before if token.ignored else token
    return "".join(parts)


def _qualified(before: Token | None) -> bool:
    return before is not None and before.text.lower() in {".", "as"}


def bind(sql: str, clock: str) -> str:
    """The text with every literal spelling of now replaced by the clock.

    Handles `current_time`, `current_timestamp` (the full time), `current_date`, a literal `'now'`
    and missing arguments in functions of time, and `%y` and `%j` in a literal `strftime` format
    (the data set lower-cased `%Y` and `%J`). Other literals, names and comments stay as they are;
    so does `now` that the text computes or reads from a cell, which the sandbox sees as it runs.

    >>> bind("select date('now'), 'now', current_time", "2105-12-31 23:59:00")
    "select date('2105-12-31 23:59:00'), 'now', '2105-12-31 23:59:00'"
    """
    return _Binding(sql, check_clock(clock)).text(keywords=True)


def plain(sql: str, clock: str) -> str | None:
    """The bound text if SQLite's own functions of time are certain to agree with the clock on it.

    None where the text might still meet a now when it runs: one that it computes, one in a literal
    outside a function of time, a format that is no literal. Then the functions themselves must be
    replaced, which costs a call into Python for every row. None as well where the text names no
    function of time. Keywords stay: replacing their functions is free. Certain only for a database
    without a cell that reads `now`.
    """
    if _TIME_WORD.search(sql) is None:
        return None
    parts: list[str] = []
    done = 0
    for match in _SPOT.finditer(sql):
        new = _plain_spot(match, clock)
        if new is None:
            return None
        if new is not _SAME:
            parts += (sql[done : match.start()], new)
            done = match.end()
    return "".join((*parts, sql[done:])) if parts else sql


_SAME = ""


def _plain_spot(match: re.Match[str], clock: str) -> str | None:
    """What stands at one spot of the bound text; _SAME for no change, None for uncertainty."""
    text, kind = match.group(), match.lastgroup
    if kind == "call":
        return _SAME if text[:-1].rstrip().lower() in _INERT else None
    if kind == "format":
        head = "".join(match.group("open", "literal"))
        return _bound_format(head) + _bound_now(match.group("rest") or "", clock, ", ")
    if kind == "time":
        return match.group("name") + _bound_now(match.group("now"), clock, "")
    if kind == "literal_":
        return None if text[0] in "xX" or text[1:-1].lower() in _NOWS else _SAME
    return None


def _bound_format(text: str) -> str:
    """A `strftime` format as the data set means it; `%%` is a per cent sign."""
    pieces = text.split("%%")
    return "%%".join(p.replace("%y", "%Y").replace("%j", "%J") for p in pieces)


def _bound_now(rest: str, clock: str, comma: str) -> str:
    """The end of a call's head: `)` without a time, or a literal now."""
    if rest.strip() == ")":
        return f"{comma}'{clock}')"
    at = rest.find("'")
    return rest if at < 0 else f"{rest[:at]}'{clock}'"


class _Binding:
    """One text, its tokens, and those of them that are code."""

    def __init__(self, sql: str, clock: str) -> None:
        self._clock = clock
        self._code: list[Token] = []
        self._texts: list[str] = []
        self._index: list[int] = []
        for i, token in enumerate(tokens(sql)):
            self._texts.append(token.text)
            if not token.ignored:
                self._code.append(token)
                self._index.append(i)

    def text(self, *, keywords: bool) -> str:
        """The text, bound; with or without the keywords such as `current_time`."""
        for i, token in enumerate(self._code):
            word = token.text.lower() if token.kind == "word" else ""
            if self._at(i + 1) == "(":
                if word in _TIME_FUNCTIONS:
                    self._bind_time(i + 2)
                elif word == "strftime":
                    self._bind_format(i + 2)
            elif (
                keywords and word in _KEYWORDS and not _qualified(self._code[i - 1] if i else None)
            ):
                self._put(i, f"'{self._clock[:10] if word == 'current_date' else self._clock}'")
        return "".join(self._texts)

    def _at(self, i: int) -> str:
        return self._code[i].text if i < len(self._code) else ""

    def _put(self, i: int, text: str) -> None:
        self._texts[self._index[i]] = text

    def _bind_time(self, i: int) -> None:
        """Bind the first argument of a function of time; it starts at code token `i`."""
        if self._at(i) == ")":
            self._put(i, f"'{self._clock}')")
        elif self._at(i).lower() in ("'now'", '"now"') and self._at(i + 1) in (",", ")"):
            self._put(i, f"'{self._clock}'")

    def _bind_format(self, i: int) -> None:
        """Bind the format of `strftime`, and the time that follows it."""
        if i >= len(self._code) or self._code[i].kind not in ("string", "quoted"):
            return
        text = _bound_format(self._code[i].text)
        if self._at(i + 1) == ")":
            text += f", '{self._clock}'"
        elif self._at(i + 1) == ",":
            self._bind_time(i + 2)
        self._put(i, text)
