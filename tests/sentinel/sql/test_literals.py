from __future__ import annotations

import pytest

from sentinel.sql.grounding import ground
from sentinel.sql.literals import Evidence
from sentinel.sql.schema import Schema

SCHEMA = Schema({"t": ("a", "b", "charttime")})
CLOCK = "2105-12-31 23:59:00"


def fraction(sql: str, question: str = "", *results: str) -> float:
    found = ground(sql, SCHEMA)
    assert found is not None
    evidence = Evidence(CLOCK, [question])
    for text in results:
        evidence.add_result(text)
    return evidence.ungrounded(found.literals)


@pytest.mark.parametrize(
    ("sql", "question", "expected"),
    [
        ("SELECT a FROM t", "how many?", 0.0),  # no literals: neutral
        ("SELECT a FROM t WHERE b = 5", "patient 5", 0.0),
        ("SELECT a FROM t WHERE b = 5", "patient 55", 1.0),
        ("SELECT a FROM t WHERE b = 5.0", "patient 5", 0.0),  # by value
        ("SELECT a FROM t WHERE b = '5'", "patient 5.00", 0.0),
        ("SELECT a FROM t WHERE b = 1200", "more than 1,200 units", 0.0),
        ("SELECT a FROM t WHERE b = -3", "below -3 degrees", 0.0),
        ("SELECT a FROM t WHERE b = 1e3", "1000", 0.0),
        ("SELECT a FROM t WHERE b = 'Aspirin'", "was ASPIRIN given?", 0.0),
        ("SELECT a FROM t WHERE b = 'asp'", "was aspirin given?", 1.0),  # whole words
        ("SELECT a FROM t WHERE b = 'sodium  chloride'", "sodium chloride dose", 0.0),
        ("SELECT a FROM t WHERE b LIKE '%pulm%'", "pulm edema", 0.0),
        ("SELECT a FROM t WHERE b = 'x' AND a = 7", "the x thing", 0.5),
        ("SELECT a FROM t WHERE b = ''", "?", 0.0),  # nothing to ground
        ('SELECT a FROM t WHERE b = "m"', "gender m", 0.0),  # SQLite: a string
        ('SELECT a FROM t WHERE b = "q"', "gender m", 1.0),
        ("SELECT a FROM t WHERE b = 'it''s'", "it's", 0.0),
        ("SELECT a FROM t LIMIT 1", "?", 1.0),  # a literal like any other
        # clock constants
        ("SELECT a FROM t WHERE charttime < datetime('now', '-1 year')", "?", 0.0),
        (
            "SELECT a FROM t WHERE charttime < datetime('NOW', 'start of month', \"-1 day\")",
            "?",
            0.0,
        ),
        ("SELECT a FROM t WHERE strftime('%Y-%m', charttime) = strftime('%Y-%m', 'now')", "?", 0.0),
        ("SELECT a FROM t WHERE charttime < '2105-12-31 23:59:00'", "?", 0.0),
        ("SELECT a FROM t WHERE charttime < '2105-12-31'", "?", 0.0),
        ("SELECT a FROM t WHERE charttime < date('2104-01-01', '-1 day')", "?", 1.0),
        ("SELECT a FROM t WHERE strftime('%Y', charttime) = '2104'", "in 2104", 0.0),
        ("SELECT a FROM t WHERE b LIKE '%Y'", "?", 1.0),
    ],
)
def test_fractions(sql: str, question: str, expected: float) -> None:
    assert fraction(sql, question) == expected


def test_results_ground_by_their_cells_only() -> None:
    shown = "7 rows x 2 cols (drug, 9)\n['o''brien', 41]\n[NULL, 3.50]\n... 5 more rows"
    assert fraction("SELECT a FROM t WHERE b = 41", "", shown) == 0.0
    assert fraction("SELECT a FROM t WHERE b = 3.5", "", shown) == 0.0
    assert fraction("SELECT a FROM t WHERE b = 'O''Brien'", "", shown) == 0.0
    for invented in ("7", "9", "5", "'drug'"):
        assert fraction(f"SELECT a FROM t WHERE b = {invented}", "", shown) == 1.0
