"""Every spelling of now is the clock; every date is SQLite's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.errors import UserError
from sentinel.sql.clock import VITAL_RANGES, bind, check_clock, days_in_month, plain, vital_ranges
from sentinel.sql.lexer import tokens
from sentinel.sql.sandbox import SandboxPool

CLOCK = "2105-12-31 23:59:00"
DAY = CLOCK[:10]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxPool]:
    """A database without a cell that says now: SQLite's own functions serve plain texts."""
    path = tmp_path_factory.mktemp("clock") / "plain.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (a TEXT, b TEXT)")
    db.executemany(
        "INSERT INTO t VALUES (?, ?)", [("2104-02-29 10:00:00", "known"), ("snow", None)]
    )
    db.commit()
    db.close()
    with SandboxPool(path, CLOCK) as pool:
        yield pool
    assert pool._knows_now is False


NOWS = [
    ("current_time", CLOCK), ("CURRENT_TIMESTAMP", CLOCK), ("Current_Date", DAY),
    ("datetime('now')", CLOCK), ("datetime('NOW')", CLOCK), ("datetime ( 'Now' )", CLOCK),
    ("datetime()", CLOCK), ("datetime( )", CLOCK), ("date()", DAY), ("date('now')", DAY),
    ("time()", "23:59:00"), ("time('now')", "23:59:00"), ("date(/* c */'now')", DAY),
    ("date(-- c\n)", DAY), ("\"date\"('now')", DAY), ("[date]('now')", DAY),
    ("date(\"now\")", DAY), ("date('no'||'w')", DAY), ("date(lower('NOW'))", DAY),
    ("date(char(110,111,119))", DAY), ("date(x'6e6f77')", DAY),
    ("date(cast(x'6e6f77' as text))", DAY), ("date('now' || char(0) || 'x')", DAY),
    ("date(replace('nXw','X','o'))", DAY), ("date(substr('snow', 2))", DAY),
    ("date((select 'now'))", DAY), ("date(coalesce(null, 'now'))", DAY), ("date(('now'))", DAY),
    ("date('now', '-1 day')", "2105-12-30"),
    ("date(current_time, 'start of year')", "2105-01-01"),
    ("datetime(current_date)", DAY + " 00:00:00"),
    ("date('now', '+2 months', 'start of month')", "2106-03-01"), ("strftime('%Y')", "2105"),
    ("strftime('%y', 'now')", "2105"), ("strftime('%y-%m', current_time)", "2105-12"),
    ("strftime('%Y' , 'now' , '-1 year')", "2104"), ("strftime('%%y%y', 'now')", "%y2105"),
    ("strftime('%' || 'y', 'now')", "2105"), ("strftime((select '%y'), 'now')", "2105"),
    ("julianday('now') - julianday(current_time)", 0.0), ("unixepoch('now') - unixepoch()", 0),
    ("datetime('now') = datetime('now')", 1), ("'now'", "now"),
    ("'date(''now'')'", "date('now')"), ("'current_time'", "current_time"), ("'%y'", "%y"),
    ("datetime('now', 'localtime')", CLOCK), ("datetime('now', 'utc')", CLOCK),
    ("coalesce('now', date('now'))", "now"), ("strftime(NULL, 'now')", None),
    ("date(NULL)", None), ("date('2100-02-28', '+1 day')", "2100-03-01"),
    ("date('0000-01-01')", "0000-01-01"),
    ("julianday('2105-01-01') - julianday('1805-01-01')", 300 * 365.0 + 73),
    ("date(0)", "-4713-11-24"), ("typeof(current_time)", "text"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value"), NOWS)
def test_every_spelling_of_now_is_the_clock(
    pool: SandboxPool, honest: SandboxPool, expression: str, value: object
) -> None:
    for sandbox in (pool, honest):
        result = sandbox.query(f"SELECT {expression}")
        assert result.error is None
        assert result.rows == ((value,),)


@pytest.mark.parametrize(
    ("expression", "native"),
    [
        ("strftime('%J', 'now')", "strftime('%J', @)"), ("strftime('%j')", "strftime('%J', @)"),
        ("julianday()", "julianday(@)"), ("julianday('now')", "julianday(@)"),
        ("unixepoch()", "unixepoch(@)"), ("strftime('%s', 'now')", "strftime('%s', @)"),
        ("strftime('%f %H:%M', 'now')", "strftime('%f %H:%M', @)"),
        ("date('2100-02-29')", "date('2100-02-29')"),
        ("strftime('%w %W', 'now', '-9 days')", "strftime('%w %W', @, '-9 days')"),
        ("strftime(1, 'now')", "strftime(1, @)"), ("strftime(1.0, 'now')", "strftime(1.0, @)"),
    ],
)  # fmt: skip
def test_numbers_of_now_are_sqlites(
    pool: SandboxPool, honest: SandboxPool, expression: str, native: str
) -> None:
    db = sqlite3.connect(":memory:")
    expected = db.execute(f"SELECT {native}".replace("@", f"'{CLOCK}'")).fetchone()
    db.close()
    for sandbox in (pool, honest):
        assert repr(sandbox.query(f"SELECT {expression}").rows[0]) == repr(expected)


def test_now_in_a_cell_is_the_clock(pool: SandboxPool, honest: SandboxPool) -> None:
    sql = "SELECT DISTINCT date(value) FROM odd WHERE kind = 'now'"
    assert pool.query(sql).rows == ((DAY,),)
    assert pool._knows_now is True  # seen by the scan, so no text is plain
    honest.query("SELECT date(a) FROM t")
    assert honest._knows_now is False


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE VIEW v AS SELECT date('now') AS d", "CREATE TABLE v (x, d AS ('no' || x))",
        "CREATE TABLE v AS SELECT x'4e4f57' AS d",
        "CREATE TABLE v AS SELECT 'Now' || char(0) || 'z' AS d",
    ],
)  # fmt: skip
def test_now_hidden_in_the_schema_or_in_bytes(tmp_path: Path, ddl: str) -> None:
    db = sqlite3.connect(tmp_path / "x.db")
    db.execute(ddl)
    if "x, d AS" in ddl:
        db.execute("INSERT INTO v (x) VALUES ('w')")
    db.commit()
    db.close()
    with SandboxPool(tmp_path / "x.db", CLOCK) as sandbox:
        assert sandbox.query("SELECT date(d) FROM v").rows == ((DAY,),)


def test_a_table_named_now(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "x.db")
    db.execute("CREATE TABLE now (x)")
    db.commit()
    db.close()
    with SandboxPool(tmp_path / "x.db", CLOCK) as sandbox:
        assert sandbox.query("SELECT date(name) FROM sqlite_master").rows == ((DAY,),)


MODIFIERS = st.sampled_from(
    [
        "+1 day", "-3 months", "start of month", "start of day", "+0.5 hours", "weekday 2",
        "1 year", "unixepoch", "auto", "junk", "-1 day", "+30 minutes", "start of year",
        "julianday",
    ]
)  # fmt: skip
TIMES = st.one_of(
    st.datetimes().map(lambda d: d.isoformat(sep=" ")[:19]),
    st.dates().map(str),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from(["", "x", "12:30", "2105-02-30", "2105-13-01", None, b"2105-01-01"]),
)


@given(
    name=st.sampled_from(["date", "time", "datetime", "julianday", "unixepoch"]),
    moment=TIMES,
    modifiers=st.lists(MODIFIERS, max_size=3),
)
def test_arithmetic_is_sqlites_bit_for_bit(
    pool: SandboxPool, name: str, moment: object, modifiers: list[str]
) -> None:
    plain_sqlite = sqlite3.connect(":memory:")
    literal = plain_sqlite.execute("SELECT quote(?)", (moment,)).fetchone()[0]
    arguments = ", ".join([literal, *(f"'{m}'" for m in modifiers)])
    expected = plain_sqlite.execute(f"SELECT {name}({arguments})").fetchone()
    plain_sqlite.close()
    result = pool.query(f"SELECT {name}({arguments})")
    assert result.error is None
    assert repr(result.rows[0]) == repr(expected)


def test_bind_rewrites_code_and_nothing_else() -> None:
    same = [
        "SELECT 'now', 'current_time', \"current_time\", [now], `current_date` -- date('now')",
        "SELECT t.current_time, x AS current_time /* date() */ FROM t",
        "SELECT mydate('now'), date(x, 'now'), date('now' || ''), '%y', format('%y', 'now')",
    ]
    for sql in same:
        assert bind(sql, CLOCK) == sql
    assert bind("select strftime('%y', a), strftime('%j')", CLOCK) == (
        f"select strftime('%Y', a), strftime('%J', '{CLOCK}')"
    )
    assert bind("select datetime(current_time,'start of day')", CLOCK) == (
        f"select datetime('{CLOCK}','start of day')"
    )
    assert bind("select current_date, DATE( )", CLOCK) == f"select '{DAY}', DATE( '{CLOCK}')"


SQLISH = st.lists(
    st.sampled_from(
        [
            "date", "strftime", "datetime", "(", ")", "'now'", ",", " ", "'%y'", "current_time",
            "--", "\n", "/*", "*/", "'", '"now"', "x", "||", "a.b", "1", "=", "'it''s'", "in",
            "upper", "x'6e6f77'", "'-1 day'", ";", "select",
        ]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(SQLISH)
def test_a_plain_text_is_the_bound_text(sql: str) -> None:
    fast = plain(f"select date(a) {sql}", CLOCK)
    if fast is not None:
        whole = bind(f"select date(a) {sql}", CLOCK)
        for keyword in ("current_time", "current_date", "current_timestamp"):
            fast = fast.replace(keyword, f"'{CLOCK}'")
            whole = whole.replace(keyword, f"'{CLOCK}'")
        assert fast == whole


@given(SQLISH)
def test_a_plain_text_gives_the_same_result(
    pool: SandboxPool, honest: SandboxPool, sql: str
) -> None:
    """`pool` always replaces the functions, `honest` does where it must."""
    text = f"SELECT date({sql}"
    a, b = pool.query(text), honest.query(text)
    if not (a.error or b.error):
        assert repr(a.rows) == repr(b.rows)
    assert (a.error is None) == (b.error is None)


@given(st.text(max_size=40))
def test_tokens_are_the_text(sql: str) -> None:
    assert "".join(t.text for t in tokens(sql)) == sql
    bind(sql, CLOCK)
    vital_ranges(sql + "_lower")


def test_calendar_and_clock() -> None:
    assert days_in_month(2100, 2) == 28
    assert days_in_month(2000, 2) == 29
    assert days_in_month(2104, 2) == 29
    assert check_clock(CLOCK) == CLOCK
    for bad in (
        "2105-12-31T23:59:00",
        "2105-12-31 23:59:00Z",
        "2105-12-32 00:00:00",
        "2105-1-1 0:0:0",
    ):
        with pytest.raises(UserError):
            check_clock(bad)


def test_vital_ranges_touch_names_only() -> None:
    for name, (low, high) in VITAL_RANGES.items():
        sql = f"valuenum between {name}_lower and {name.upper()}_UPPER"
        assert vital_ranges(sql) == f"valuenum between {low} and {high}"
    same = "'sao2_lower' \"sao2_upper\" t.sao2_lower x as sao2_lower -- sao2_lower\nmy_sao2_lower"
    assert vital_ranges(same) == same
