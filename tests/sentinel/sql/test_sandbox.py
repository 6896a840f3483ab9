"""Reading works for every value; nothing else does."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sentinel.errors import UserError
from sentinel.sql.clock import vital_ranges
from sentinel.sql.result import Result
from sentinel.sql.sandbox import Limits, SandboxPool

CLOCK = "2105-12-31 23:59:00"
CANARY = (
    "SELECT count(*), sum(cost), min(admittime), (SELECT count(*) FROM sqlite_master) FROM visits"
)


def snapshot(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def one(pool: SandboxPool, sql: str) -> object:
    result = pool.query(sql)
    assert result.error is None, result.error
    ((value,),) = result.rows
    return value


def test_every_value_survives_execution_and_json(pool: SandboxPool) -> None:
    result = pool.query("SELECT kind, value FROM odd ORDER BY id")
    values = dict(result.rows)
    assert values["inf"] == math.inf
    assert math.copysign(1, values["minus zero"]) == -1  # type: ignore[arg-type]
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
    ["SELECT 1;", "SELECT 1;;", " SELECT 1 ; -- done", "SELECT 1;/* a */;", "/* ; */ SELECT 1", ";SELECT 1",
     "\ufeffSELECT 1", "SELECT 1 -- ; SELECT 2", "WITH RECURSIVE c(x) AS (VALUES(1)) SELECT x FROM c",
     "VALUES (1)", "SELECT (SELECT 1)", "SELECT 1 /* open"],
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


FORBIDDEN = [
    "DELETE FROM odd", "WITH x AS (SELECT 1) DELETE FROM odd", "INSERT INTO odd VALUES (99, 'a', 'b')",
    "WITH x AS (SELECT 1) INSERT INTO odd (id) SELECT 77", "UPDATE odd SET kind = 'x'", "REPLACE INTO odd VALUES (1,2,3)",
    "DELETE FROM odd RETURNING id", "CREATE TABLE t (a)", "CREATE TEMP TABLE patients (a)",
    "CREATE TEMP VIEW patients AS SELECT 1", "CREATE TEMP TRIGGER g AFTER INSERT ON odd BEGIN SELECT 1; END",
    "CREATE INDEX i ON odd (kind)", "CREATE VIRTUAL TABLE t USING fts5(a)", "DROP TABLE odd", "ALTER TABLE odd RENAME TO o",
    "ATTACH 'file:{dir}/a.db?mode=rwc' AS a", "ATTACH ':memory:' AS a", "ATTACH DATABASE '{dir}/b.db' AS b", "DETACH main",
    "VACUUM", "VACUUM INTO '{dir}/c.db'", "VACUUM main INTO '{dir}/c.db'", "REINDEX", "ANALYZE",
    "PRAGMA user_version", "PRAGMA user_version = 3", "PRAGMA writable_schema = 1", "PRAGMA query_only = 0",
    "PRAGMA journal_mode = WAL", "PRAGMA temp_store_directory = '{dir}'", "PRAGMA hard_heap_limit = 0",
    "PRAGMA case_sensitive_like = 1", "PRAGMA reverse_unordered_selects = 1", "PRAGMA data_store_directory = '{dir}'",
    "SELECT * FROM pragma_table_info('odd')", "SELECT * FROM pragma_database_list", "SELECT count(*) FROM pragma_database_list",
    "SELECT 1 FROM pragma_user_version", "SELECT * FROM pragma_function_list()", "SELECT * FROM dbstat",
    "SELECT * FROM sqlite_stmt", "SELECT * FROM sqlite_dbpage", "SELECT count(*) FROM sqlite_dbpage",
    "SELECT * FROM bytecode('select 1')", "SELECT load_extension('{dir}/x.so')", "SELECT load_extension('x', 'y')",
    "SELECT fts3_tokenizer('simple')", "SELECT fts3_tokenizer('x', x'00')", "SELECT writefile('{dir}/w', 'x')",
    "SELECT readfile('/etc/passwd')", "SELECT edit('x')", "SELECT sqlite_rename_column(1,2,3,4,5,6,7,8,9)",
    "BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "SAVEPOINT s", "RELEASE s", "EXPLAIN DELETE FROM odd",
    "EXPLAIN QUERY PLAN ATTACH '{dir}/d.db' AS d", ".shell touch {dir}/e", "SELECT * FROM csv_read('/etc/passwd')",
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


def test_json_full_scan_windows_and_schema_are_readable(pool: SandboxPool) -> None:
    assert pool.query("SELECT value FROM json_each('[1,2]')").rows == ((1,), (2,))
    assert one(pool, "SELECT count(*) FROM json_tree('[1,[2]]')") == 4
    assert one(pool, "SELECT count(*) FROM sqlite_master WHERE type = 'table'") == 3
    assert (
        one(pool, "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY cost) r FROM visits)")
        == 2000
    )
    assert one(pool, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<9) SELECT count(*) FROM c") == 9  # fmt: skip
    assert pool.query("EXPLAIN QUERY PLAN SELECT 1 FROM odd").error is None


BOMBS = [
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c",
    "SELECT count(*) FROM visits a, visits b, visits c, visits d",
    "SELECT max(date(a.admittime, '+' || b.cost || ' days')) FROM visits a, visits b, visits c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c ORDER BY random()",
    "SELECT sum(length(hex(randomblob(400000)))) FROM visits, visits",
    "WITH RECURSIVE c(x,s) AS (SELECT 1,'a' UNION ALL SELECT x+1,s||s FROM c WHERE x<19) "
    "SELECT count(*) FROM c a, c b WHERE a.s LIKE '%a%a%a%a%a%b' || b.s",
    "SELECT group_concat(a.admittime) FROM visits a, visits b",
]
REFUSED_SIZES = [
    "SELECT hex(zeroblob(400000000))", "SELECT zeroblob(2000000000)", "SELECT replace(hex(zeroblob(400000)), '0', hex(zeroblob(400000)))",
    "SELECT randomblob(1000000000)", "SELECT " + "(" * 300 + "1" + ")" * 300,
    "SELECT " + " + ".join(["1"] * 5000), " UNION ALL ".join(["SELECT 1"] * 600),
    "SELECT " + ",".join(["1"] * 5000), "SELECT '" + "x" * 120_000 + "'", "SELECT abs(-9223372036854775808)",
    "SELECT sum(9223372036854775807) FROM visits", "SELECT 'a' LIKE '" + "%a" * 1000 + "'",
    "SELECT ?1", "SELECT :name", "SELECT 1\x00; DROP TABLE odd", "SELECT '\ud800'",
    "SELECT json_extract('" + "[" * 3000 + "', '$')", "SELECT nosuch", "SELECT 1 FROM nosuch", "garbage",
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


def test_a_worker_stuck_outside_the_handler_is_killed_and_replaced(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1, Limits(seconds=0.2, grace_seconds=0.2)) as sandbox:
        (worker,) = sandbox._all
        os.kill(worker.process.pid, signal.SIGSTOP)
        started = time.monotonic()
        assert "timeout" in str(sandbox.query("SELECT 1").error)
        assert time.monotonic() - started < 2.0
        assert one(sandbox, "SELECT 2") == 2
        assert worker.process.poll() is not None


def test_a_worker_that_was_killed_costs_no_statement(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1) as sandbox:
        for sql in ("SELECT 2", "SELECT date() > '2105' + 1"):
            (worker,) = sandbox._all
            worker.process.kill()
            worker.process.wait()
            assert one(sandbox, sql) in (2, 1)
            assert len(sandbox._all) == 1


def test_a_worker_killed_in_a_statement_is_replaced(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1) as sandbox, ThreadPoolExecutor(1) as threads:
        (worker,) = sandbox._all
        running = threads.submit(sandbox.query, BOMBS[0])
        time.sleep(0.3)
        worker.process.kill()
        assert "ended its worker" in str(running.result().error)
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


def test_threads_and_coroutines_share_the_pool(pool: SandboxPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        sqls = [f"SELECT {i}, count(*) FROM patients" for i in range(200)]
        rows = [r.rows[0] for r in threads.map(pool.query, sqls)]
    assert rows == [(i, 200) for i in range(200)]

    async def many() -> list[Result]:
        return await asyncio.gather(*(pool.aquery(f"SELECT {i}") for i in range(50)))

    assert [r.rows[0][0] for r in asyncio.run(many())] == list(range(50))


def test_a_coroutine_does_not_block_the_loop(database: Path) -> None:
    async def ticks() -> int:
        with SandboxPool(database, CLOCK, 1, Limits(seconds=0.5)) as sandbox:
            query = asyncio.create_task(sandbox.aquery(BOMBS[0]))
            count = 0
            while not query.done():
                await asyncio.sleep(0.01)
                count += 1
            return count

    assert asyncio.run(ticks()) > 5


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


PARENT = """
import sys, threading, time
from sentinel.sql.sandbox import Limits, SandboxPool
pool = SandboxPool(sys.argv[1], "2105-12-31 23:59:00", 2, Limits(seconds=60))
bomb = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"
threading.Thread(target=pool.query, args=(bomb,), daemon=True).start()
time.sleep(0.3)
print(*[w.process.pid for w in pool._all], flush=True)
time.sleep(60)
"""


def test_workers_die_with_their_parent_idle_or_busy(database: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert gone(pids)


def test_a_worker_outlives_the_thread_that_started_it(database: Path) -> None:
    made: list[SandboxPool] = []
    thread = threading.Thread(target=lambda: made.append(SandboxPool(database, CLOCK)))
    thread.start()
    thread.join()
    with made[0] as sandbox:
        (worker,) = sandbox._all
        time.sleep(0.2)
        assert one(sandbox, "SELECT 1") == 1
        assert worker.process.poll() is None


def test_close_ends_workers_and_queries_in_flight(database: Path) -> None:
    sandbox = SandboxPool(database, CLOCK, 2, Limits(seconds=60))
    pids = [worker.process.pid for worker in sandbox._all]
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sandbox.query, BOMBS[0])
        time.sleep(0.3)
        sandbox.close()
        with pytest.raises(RuntimeError, match="closed"):
            running.result(timeout=10)
    sandbox.close()
    assert gone(pids)
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.query("SELECT 1")


def test_a_dropped_pool_leaves_no_process(database: Path) -> None:
    sandbox = SandboxPool(database, CLOCK)
    pids = [worker.process.pid for worker in sandbox._all]
    del sandbox
    assert gone(pids)


def test_a_worker_inherits_no_secret(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with SandboxPool(database, CLOCK) as sandbox:
        (worker,) = sandbox._all
        environment = Path(f"/proc/{worker.process.pid}/environ").read_bytes()
    assert b"sk-secret" not in environment


def test_a_worker_loads_the_standard_library_only(database: Path) -> None:
    with SandboxPool(database, CLOCK) as sandbox:
        (worker,) = sandbox._all
        one(sandbox, "SELECT 1")
        mapped = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert "site-packages" not in mapped


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
