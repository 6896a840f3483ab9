"""The database's clock and the benchmark's placeholders, as text.

The sandbox does not need `bind`: its workers replace SQLite's functions of time themselves, so the
model's text runs unchanged. `bind` is for a plain SQLite or another reader of the same query.
"""

from __future__ import annotations

import re

from sentinel.errors import UserError
from sentinel.sql.lexer import Token, tokens

_FORM = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_TIME_FUNCTIONS = frozenset({"date", "time", "datetime", "julianday", "unixepoch"})
_KEYWORDS = frozenset({"current_time", "current_date", "current_timestamp"})
VITAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}
"""EHRSQL's normal ranges, by the name that its placeholders `<name>_lower` and `<name>_upper` use."""

_VITALS = {
    f"{name}_{side}": repr(value)
    for name, pair in VITAL_RANGES.items()
    for side, value in zip(("lower", "upper"), pair, strict=True)
}


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

    Handles `current_time`, `current_timestamp` (the full time), `current_date`, a literal `'now'` and
    missing arguments in functions of time, and `%y` and `%j` in a literal `strftime` format (the data
    set lower-cased `%Y` and `%J`). Other literals, names and comments stay as they are; so does `now`
    that the text only computes or reads from a cell, which the sandbox handles when it runs.

    >>> bind("select date('now'), 'now', current_time", "2105-12-31 23:59:00")
    "select date('2105-12-31 23:59:00'), 'now', '2105-12-31 23:59:00'"
    """
    check_clock(clock)
    found = list(tokens(sql))
    texts = [token.text for token in found]
    code = [i for i, token in enumerate(found) if not token.ignored]
    for place, i in enumerate(code):
        word = texts[i].lower() if found[i].kind == "word" else ""
        after = [found[j] for j in code[place + 1 : place + 4]]
        called = bool(after) and after[0].text == "("
        earlier = found[code[place - 1]] if place else None
        if word in _KEYWORDS and not called and not _qualified(earlier):
            texts[i] = f"'{clock[:10] if word == 'current_date' else clock}'"
        elif called and word in _TIME_FUNCTIONS:
            _bind_time(found, texts, code, place + 2, clock)
        elif called and word == "strftime":
            _bind_format(found, texts, code, place + 2, clock)
    return "".join(texts)


def _bind_time(found: list[Token], texts: list[str], code: list[int], at: int, clock: str) -> None:
    """Bind the first argument of a function of time, whose first token is `code[at]`."""
    if at >= len(code):
        return
    i = code[at]
    if found[i].text == ")":
        texts[i] = f"'{clock}')"
    elif found[i].text.lower() in ("'now'", '"now"') and _ends_argument(found, code, at + 1):
        texts[i] = f"'{clock}'"


def _bind_format(
    found: list[Token], texts: list[str], code: list[int], at: int, clock: str
) -> None:
    """Bind the format of `strftime` and the time that follows it."""
    if at >= len(code) or found[code[at]].kind not in ("string", "quoted"):
        return
    i = code[at]
    pieces = found[i].text.split("%%")
    texts[i] = "%%".join(p.replace("%y", "%Y").replace("%j", "%J") for p in pieces)
    if at + 1 >= len(code):
        return
    following = found[code[at + 1]].text
    if following == ")":
        texts[i] += f", '{clock}'"
    elif following == ",":
        _bind_time(found, texts, code, at + 2, clock)


def _ends_argument(found: list[Token], code: list[int], at: int) -> bool:
    return at >= len(code) or found[code[at]].text in (",", ")")
