"""Reading works for every value and every file; the rest is said at the start."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sql_sandbox import CLOCK, one

from sentinel.errors import UserError
from sentinel.sql.clock import vital_ranges
from sentinel.sql.result import Result
from sentinel.sql.sandbox import Limits, SandboxPool


def test_every_value_survives_execution_and_json(pool: SandboxPool) -> None:
    result = pool.query("SELECT kind, value FROM odd ORDER BY id")
    values: dict[object, Any] = dict(result.rows)  # type: ignore[arg-type]
    assert values["inf"] == math.inf
    assert math.copysign(1, values["minus zero"]) == -1
    assert (values["max"], values["min"], values["big"]) == (2**63 - 1, -(2**63), 2**53 + 1)
    assert values["blob"] == b"\x00\xff"
    assert values["nul"] == "a\x00b"
    assert values["bad utf-8"] == "a\ufffdb"
    assert [values[k] for k in ("empty", "null", "text NULL", "text None")] == [
        "", None, "NULL", "None",
    ]  # fmt: skip
    again = Result.from_json(result.to_json())
    assert again == result
    assert repr(again.rows) == repr(result.rows)
    assert result.to_json().isascii()


def test_columns_may_repeat_be_empty_or_be_odd(pool: SandboxPool) -> None:
    result = pool.query('SELECT 1 AS a, 2 AS a, 3 AS "", 4 AS "x\ny"')
    assert result.columns == ("a", "a", "", "x\ny")
    assert pool.query("SELECT 1 WHERE 0").columns == ("1",)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;", "SELECT 1;;", " SELECT 1 ; -- done", "SELECT 1;/* a */;", "/* ; */ SELECT 1",
        ";SELECT 1", "\ufeffSELECT 1", "SELECT 1 -- ; SELECT 2",
        "WITH RECURSIVE c(x) AS (VALUES(1)) SELECT x FROM c", "VALUES (1)", "SELECT (SELECT 1)",
        "SELECT 1 /* open",
    ],
)  # fmt: skip
def test_one_decorated_statement_is_one_statement(pool: SandboxPool, sql: str) -> None:
    assert one(pool, sql) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE odd",
        "SELECT 1;;SELECT 2 --",
        "SELECT 1; PRAGMA x",
    ],
)
def test_a_second_statement_never_runs(pool: SandboxPool, sql: str) -> None:
    assert "one statement" in str(pool.query(sql).error)


@pytest.mark.parametrize(
    "sql", ["", " \n", ";", ";;", "-- nothing", "/* nothing */", "/* ; */ ; --"]
)
def test_no_statement_is_no_result_set(pool: SandboxPool, sql: str) -> None:
    result = pool.query(sql)
    assert "no result set" in str(result.error)
    assert result.rows == ()


def test_keywords_and_semicolons_in_literals_are_ordinary(pool: SandboxPool) -> None:
    assert (
        one(pool, "SELECT 'drop table odd; delete; attach ''x'''")
        == "drop table odd; delete; attach 'x'"
    )
    assert one(pool, "SELECT value FROM odd WHERE value = 'o''brien; drop table odd'") == (
        "o'brien; drop table odd"
    )


def test_json_full_scan_windows_and_schema_are_readable(pool: SandboxPool) -> None:
    assert pool.query("SELECT value FROM json_each('[1,2]')").rows == ((1,), (2,))
    assert one(pool, "SELECT count(*) FROM json_tree('[1,[2]]')") == 4
    assert one(pool, "SELECT count(*) FROM sqlite_master WHERE type = 'table'") == 3
    assert (
        one(pool, "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY cost) r FROM visits)")
        == 2000
    )
    counted = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<9)"
    assert one(pool, f"{counted} SELECT count(*) FROM c") == 9
    assert pool.query("EXPLAIN QUERY PLAN SELECT 1 FROM odd").error is None


def test_rows_and_bytes_are_capped_and_say_so(database: Path) -> None:
    limits = Limits(max_rows=50, max_bytes=100_000)
    with SandboxPool(database, CLOCK, 1, limits) as sandbox:
        exact = sandbox.query("SELECT visit_id FROM visits ORDER BY visit_id LIMIT 50")
        assert (exact.n_rows, exact.truncated) == (50, False)
        cut = sandbox.query("SELECT visit_id FROM visits ORDER BY visit_id")
        assert (cut.n_rows, cut.truncated) == (50, True)
        assert cut.rows == exact.rows
        wide = sandbox.query("SELECT hex(zeroblob(20000)) FROM visits")
        assert wide.truncated
        assert 1 <= wide.n_rows <= 3
        assert Result.from_json(wide.to_json()) == wide


def test_an_error_while_rows_are_fetched_is_an_error(pool: SandboxPool) -> None:
    sql = (
        "SELECT abs(CASE WHEN visit_id < 2000 THEN 1 ELSE -9223372036854775807 - 1 END) FROM visits"
    )
    result = pool.query(sql)
    assert result.error == "integer overflow"
    assert result.rows == ()


def test_threads_and_coroutines_share_the_pool(pool: SandboxPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        sqls = [f"SELECT {i}, count(*) FROM patients" for i in range(200)]
        rows = [r.rows[0] for r in threads.map(pool.query, sqls)]
    assert rows == [(i, 200) for i in range(200)]

    async def many() -> list[Result]:
        return await asyncio.gather(*(pool.aquery(f"SELECT {i}") for i in range(50)))

    assert [r.rows[0][0] for r in asyncio.run(many())] == list(range(50))


@pytest.mark.parametrize(
    "name", ["a#b.db", "a?b=c.db", "a%20b.db", "a b.db", "ü☃.db", "'q\".db", "x;y.db"]
)
def test_the_file_named_is_the_file_opened(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "d#1?x%41"
    folder.mkdir()
    path = folder / name
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t AS SELECT ? AS name", (name,))
    db.commit()
    db.close()
    for spelling in (path, Path(f"//{path}"), Path(f"{folder}//{name}")):
        with SandboxPool(spelling, CLOCK) as sandbox:
            assert one(sandbox, "SELECT name FROM t") == name
    assert [p.name for p in folder.iterdir()] == [name]


def test_a_read_only_folder_is_enough(tmp_path: Path, database: Path) -> None:
    copy = tmp_path / "ro" / "x.db"
    copy.parent.mkdir()
    copy.write_bytes(database.read_bytes())
    copy.chmod(0o444)
    copy.parent.chmod(0o555)
    try:
        with SandboxPool(copy, CLOCK) as sandbox:
            assert one(sandbox, "SELECT count(*) FROM patients") == 200
    finally:
        copy.parent.chmod(0o755)


def broken_files(folder: Path) -> dict[str, Path]:
    (folder / "text.db").write_text("subject_id,gender\n1,f\n" * 20)
    (folder / "empty.db").write_bytes(b"")
    (folder / "short.db").write_bytes(b"SQLite format 3\0")
    (folder / "noise.db").write_bytes(b"SQLite format 3\0" + b"\x07" * 4096)
    wal = sqlite3.connect(folder / "wal.db")
    wal.execute("PRAGMA journal_mode=WAL")
    wal.execute("CREATE TABLE t (a)")
    wal.commit()
    wal.close()
    hot = sqlite3.connect(folder / "hot.db")
    hot.execute("CREATE TABLE t (a)")
    hot.commit()
    hot.close()
    (folder / "hot.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 \xa1c\xd7" + bytes(504))
    return {p.stem: p for p in folder.iterdir()} | {
        "missing": folder / "missing.db",
        "folder": folder,
    }


@pytest.mark.parametrize(
    "kind", ["text", "empty", "short", "noise", "wal", "hot", "missing", "folder"]
)
def test_a_file_that_cannot_serve_is_refused_at_the_start(tmp_path: Path, kind: str) -> None:
    path = broken_files(tmp_path)[kind]
    with pytest.raises(UserError) as caught:
        SandboxPool(path, CLOCK)
    assert str(path) in caught.value.cause
    assert caught.value.remedy


def test_a_clock_that_is_no_time_is_refused(database: Path) -> None:
    for clock in (
        "2105-12-31T23:59:00",
        "2105-12-31",
        "2100-02-29 00:00:00",
        "2105-12-31 24:00:00Z",
        "",
    ):
        with pytest.raises(UserError, match="clock"):
            SandboxPool(database, clock)


def test_placeholders_are_rewritten_for_everyone(database: Path) -> None:
    with SandboxPool(database, CLOCK, rewrite=vital_ranges) as sandbox:
        sql = "SELECT sao2_lower, heart_rate_upper, 'sao2_lower'"
        assert sandbox.query(sql).rows == ((95.0, 100.0, "sao2_lower"),)


def test_results_travel_as_json(pool: SandboxPool) -> None:
    data = json.loads(pool.query("SELECT 9e999 AS x, 9223372036854775807, x'0a', NULL").to_json())
    assert data["rows"] == [
        [{"float": "inf"}, {"int": "9223372036854775807"}, {"blob": "0a"}, None]
    ]
