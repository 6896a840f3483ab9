"""Does an answer equal the gold answer? Two official scorers, and typed equivalence.

The two official EHRSQL scorers disagree, so each is named. They are reimplemented here on executed
results, as their authors apply them, with one correction that both need: a failed query equals
nothing, also not another failed query. A result that the sandbox cut is incomplete and equals
nothing, unless the scorer reads no further than what is there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence

from sentinel.sql.clock import days_in_month
from sentinel.sql.result import Result, Value

SCORER_VERSION = "1"
SCORERS = {
    "strict-2022": "EHRSQL evaluate.py: first 100 rows, str(row), sorted",
    "strict-2024": "EHRSQL-2024 scoring program: numbers rounded to 3 decimals, sorted, 100 rows",
    "typed": "typed equivalence 1: values by type, one column permutation, duplicates count",
}
"""The scorers by label name, with the behaviour each version pins."""

_CUT = 100
_SEARCH_STEPS = 20_000
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?", re.ASCII)


def equal_strict_2022(gold: Result, answer: Result) -> bool:
    """The scorer of EHRSQL (2022).

    Rows become `str(tuple)`: 1 and 1.0 differ, '1' and 1 differ. The result is cut to 100 rows in
    the order the query gave, and only then sorted.
    """
    if not _usable(gold, _CUT) or not _usable(answer, _CUT):
        return False
    return _rows_2022(gold) == _rows_2022(answer)


def _rows_2022(result: Result) -> list[str]:
    return sorted(str(row) for row in result.rows[:_CUT])


def equal_strict_2024(gold: Result, answer: Result) -> bool:
    """The scorer of the EHRSQL 2024 shared task.

    Whatever Python's `float` accepts is rounded to 3 decimals (so '1', 1 and 1.0 agree), everything
    else is `str` (so NULL and 'None' agree); rows are sorted and then cut to 100.
    """
    if not _usable(gold) or not _usable(answer):
        return False
    return _rows_2024(gold) == _rows_2024(answer)


def _rows_2024(result: Result) -> list[list[str]]:
    return sorted([_rounded(value) for value in row] for row in result.rows)[:_CUT]


def _rounded(value: Value) -> str:
    try:
        return str(round(float(value), 3))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)


def equal_typed(gold: Result, answer: Result, ordered: bool) -> bool:
    """Typed equivalence.

    Numbers agree by value (1 and 1.0; fractions to 12 significant digits, because sums depend on
    the order of summation), dates by value (a day is its midnight, `T` or a blank), all else by
    type and content: NULL, '', 'NULL' and 'None' differ, '1' and 1 differ. One permutation of the
    columns holds for the whole table. Rows are a multiset, or a sequence when `ordered` (the gold
    query has an ORDER BY). Results of different width differ.
    """
    if not _usable(gold) or not _usable(answer):
        return False
    if gold.n_cols != answer.n_cols or gold.n_rows != answer.n_rows:
        return False
    left = _columns(gold)
    right = _columns(answer)
    if ordered:
        return Counter(left) == Counter(right)
    return _permutes(left, right)


def _usable(result: Result, enough: int | None = None) -> bool:
    if result.error is not None:
        return False
    return not result.truncated or (enough is not None and result.n_rows >= enough)


def _columns(result: Result) -> list[tuple[Hashable, ...]]:
    if not result.rows:
        return [()] * result.n_cols
    return list(zip(*([canonical(value) for value in row] for row in result.rows), strict=True))


def canonical(value: Value) -> Hashable:
    """A value such that two are equal by value and type exactly when these are equal."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (int, float)):
        return ("number", _number(value))
    return _date(value) or value


def _number(value: int | float) -> int | float:
    if isinstance(value, int):
        return value
    if value - value != 0:  # an infinity
        return value
    short = float(f"{value:.12g}")
    # Whole numbers keep their exact value: 2.0 ** 60 is 2 ** 60.
    return int(value) if value.is_integer() else int(short) if short.is_integer() else short


def _date(text: str) -> Hashable:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= days_in_month(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = (match.group(7) or "").rstrip("0")
    return ("date", year, month, day, hour, minute, second, fraction)


def _permutes(left: Sequence[tuple[Hashable, ...]], right: Sequence[tuple[Hashable, ...]]) -> bool:
    """Does one permutation of the columns turn the rows of `left` into those of `right`?

    Depth-first: a column may only meet one with the same values, columns so far must give the same
    multiset of partial rows, and identical columns are tried once. The search is bounded; a table
    that exhausts it (thousands of interchangeable columns by design) counts as different.
    """
    bags = [Counter(column) for column in right]
    steps = 0

    def extend(placed: list[int]) -> bool:
        nonlocal steps
        at = len(placed)
        if at == len(left):
            return True
        wanted = Counter(left[at])
        tried: set[tuple[Hashable, ...]] = set()
        # The same position first: most answers keep the order.
        for j in sorted(range(len(right)), key=lambda j: (j != at, j)):
            if j in placed or bags[j] != wanted or right[j] in tried:
                continue
            tried.add(right[j])
            steps += 1
            if steps > _SEARCH_STEPS:
                return False
            chosen = [*placed, j]
            partial = Counter(zip(*left[: at + 1], strict=True))
            if partial == Counter(zip(*(right[k] for k in chosen), strict=True)) and extend(chosen):
                return True
        return False

    return extend([])
