"""Nothing but reading is possible, within the limits, and without a trace."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sql_sandbox import BOMBS, CANARY, CLOCK, one, snapshot

from sentinel.sql.result import Result
from sentinel.sql.sandbox import Limits, SandboxPool

FORBIDDEN = [
    "DELETE FROM odd", "WITH x AS (SELECT 1) DELETE FROM odd",
    "INSERT INTO odd VALUES (99, 'a', 'b')",
    "WITH x AS (SELECT 1) INSERT INTO odd (id) SELECT 77", "UPDATE odd SET kind = 'x'",
    "REPLACE INTO odd VALUES (1,2,3)", "DELETE FROM odd RETURNING id", "CREATE TABLE t (a)",
    "CREATE TEMP TABLE patients (a)", "CREATE TEMP VIEW patients AS SELECT 1",
    "CREATE TEMP TRIGGER g AFTER INSERT ON odd BEGIN SELECT 1; END",
    "CREATE INDEX i ON odd (kind)", "CREATE VIRTUAL TABLE t USING fts5(a)", "DROP TABLE odd",
    "ALTER TABLE odd RENAME TO o", "ATTACH 'file:{dir}/a.db?mode=rwc' AS a",
    "ATTACH ':memory:' AS a", "ATTACH DATABASE '{dir}/b.db' AS b", "DETACH main", "VACUUM",
    "VACUUM INTO '{dir}/c.db'", "VACUUM main INTO '{dir}/c.db'", "REINDEX", "ANALYZE",
    "PRAGMA user_version", "PRAGMA user_version = 3", "PRAGMA writable_schema = 1",
    "PRAGMA query_only = 0", "PRAGMA journal_mode = WAL", "PRAGMA temp_store_directory = '{dir}'",
    "PRAGMA hard_heap_limit = 0", "PRAGMA case_sensitive_like = 1",
    "PRAGMA reverse_unordered_selects = 1", "PRAGMA data_store_directory = '{dir}'",
    "SELECT * FROM pragma_table_info('odd')", "SELECT * FROM pragma_database_list",
    "SELECT count(*) FROM pragma_database_list", "SELECT 1 FROM pragma_user_version",
    "SELECT * FROM pragma_function_list()", "SELECT * FROM dbstat", "SELECT * FROM sqlite_stmt",
    "SELECT * FROM sqlite_dbpage", "SELECT count(*) FROM sqlite_dbpage",
    "SELECT * FROM bytecode('select 1')", "SELECT load_extension('{dir}/x.so')",
    "SELECT load_extension('x', 'y')", "SELECT fts3_tokenizer('simple')",
    "SELECT fts3_tokenizer('x', x'00')", "SELECT writefile('{dir}/w', 'x')",
    "SELECT readfile('/etc/passwd')", "SELECT edit('x')",
    "SELECT sqlite_rename_column(1,2,3,4,5,6,7,8,9)", "BEGIN", "BEGIN IMMEDIATE", "COMMIT",
    "ROLLBACK", "SAVEPOINT s", "RELEASE s", "EXPLAIN DELETE FROM odd",
    "EXPLAIN QUERY PLAN ATTACH '{dir}/d.db' AS d", ".shell touch {dir}/e",
    "SELECT * FROM csv_read('/etc/passwd')",
]  # fmt: skip


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_nothing_but_reading_is_allowed(pool: SandboxPool, database: Path, sql: str) -> None:
    before, canary = snapshot(database.parent), pool.query(CANARY)
    result = pool.query(sql.replace("{dir}", str(database.parent)))
    assert result.error is not None
    assert "\n" not in result.error
    assert snapshot(database.parent) == before
    assert pool.query(CANARY) == canary


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_a_read_only_worker_needs_no_text_scanning(pool: SandboxPool, sql: str) -> None:
    """The same words inside a literal are data."""
    quoted = sql.replace("'", "''")
    assert one(pool, f"SELECT '{quoted}'") == sql


REFUSED_SIZES = [
    "SELECT hex(zeroblob(400000000))", "SELECT zeroblob(2000000000)",
    "SELECT replace(hex(zeroblob(400000)), '0', hex(zeroblob(400000)))",
    "SELECT randomblob(1000000000)", "SELECT " + "(" * 300 + "1" + ")" * 300,
    "SELECT " + " + ".join(["1"] * 5000), " UNION ALL ".join(["SELECT 1"] * 600),
    "SELECT " + ",".join(["1"] * 5000), "SELECT '" + "x" * 120_000 + "'",
    "SELECT abs(-9223372036854775808)", "SELECT sum(9223372036854775807) FROM visits",
    "SELECT 'a' LIKE '" + "%a" * 1000 + "'", "SELECT ?1", "SELECT :name",
    "SELECT 1\x00; DROP TABLE odd", "SELECT '\ud800'",
    "SELECT json_extract('" + "[" * 3000 + "', '$')", "SELECT nosuch", "SELECT 1 FROM nosuch",
    "garbage",
]  # fmt: skip


@pytest.mark.parametrize("sql", BOMBS)
def test_a_bomb_is_an_error_in_time_and_the_worker_goes_on(database: Path, sql: str) -> None:
    with SandboxPool(database, CLOCK, 1, Limits(seconds=0.3)) as sandbox:
        canary = sandbox.query(CANARY)
        started = time.monotonic()
        result = sandbox.query(sql)
        assert result.error is not None
        assert time.monotonic() - started < 3.0
        assert sandbox.query(CANARY) == canary


@pytest.mark.parametrize("sql", REFUSED_SIZES)
def test_what_is_too_big_or_wrong_is_one_line_of_error(pool: SandboxPool, sql: str) -> None:
    result = pool.query(sql)
    assert result.error is not None
    assert result.rows == ()
    assert len(result.error) < 600
    assert "\n" not in result.error
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    "sql",
    ["SELECT printf('%.*c', 900000000, 'x')", "SELECT printf('%900000000d', 1)",
     "SELECT sum(length(printf('%.*c', 900000000, 'x'))) FROM visits"],
)  # fmt: skip
def test_one_long_operation_is_no_way_past_the_deadline(database: Path, sql: str) -> None:
    """No handler runs inside one operation: the process is killed. Nothing big ever comes back."""
    with SandboxPool(database, CLOCK, 1, Limits(seconds=0.3)) as sandbox:
        started = time.monotonic()
        result = sandbox.query(sql)
        assert time.monotonic() - started < 2.0
        assert result.error is not None or result.rows == ((None,),)
        assert one(sandbox, "SELECT 2") == 2


def test_the_deadline_of_one_statement_is_not_the_next_ones(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1, Limits(seconds=0.5)) as sandbox:
        assert "timeout" in str(sandbox.query(BOMBS[0]).error)
        for _ in range(3):
            time.sleep(0.2)
            assert one(sandbox, "SELECT count(*) FROM visits a, patients b") == 400_000


def test_memory_is_capped(database: Path) -> None:
    sql = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < 2000) "
        "SELECT count(*) FROM (SELECT hex(randomblob(400000)) h, x FROM c ORDER BY h)"
    )
    with SandboxPool(database, CLOCK, 1, Limits(seconds=20, memory_bytes=160 * 2**20)) as sandbox:
        result = sandbox.query(sql)
        assert "memory" in str(result.error)
        assert one(sandbox, "SELECT 2") == 2


def test_no_statement_changes_what_another_sees(pool: SandboxPool) -> None:
    first = pool.query(
        "SELECT random(), random(), hex(randomblob(4)), changes(), last_insert_rowid()"
    )
    for sql in FORBIDDEN:
        pool.query(sql.replace("{dir}", "/nonexistent"))
    again = pool.query(
        "SELECT random(), random(), hex(randomblob(4)), changes(), last_insert_rowid()"
    )
    assert again == first  # also random numbers belong to the statement
    a, b, *_ = first.rows[0]
    assert a != b
