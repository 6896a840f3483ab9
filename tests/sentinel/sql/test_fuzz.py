"""Whatever text a model writes: no file, no hang, no trace, no dead pool."""

from __future__ import annotations

import random
import time
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sentinel.sql.observe import observation, rendered
from sentinel.sql.result import Result
from sentinel.sql.sandbox import Limits, SandboxPool

CLOCK = "2105-12-31 23:59:00"
SECONDS = 0.3
PATIENCE = 3.0
"""Seconds past the deadline that a busy machine may need to kill and replace a worker."""

CANARY = (
    "SELECT count(*), sum(cost), current_time, random(), changes(), last_insert_rowid(), "
    "(SELECT group_concat(name || sql) FROM sqlite_master) FROM visits"
)
NAMES = [
    "patients", "visits", "odd", "subject_id", "cost", "value", "icd_code", "nosuch",
    "sqlite_master", "rowid", "temp.patients", "main.odd", "pragma_table_info('odd')",
    "json_each('[1]')", "dbstat",
]  # fmt: skip
LITERALS = [
    "1", "0", "-1", "9223372036854775807", "1e308", "'now'", "''", "'it''s'", "NULL", "x'00ff'",
    "'%y'", "'2105-12-31'", "'\u2603\u202e'", "\"odd\"", "'a' || char(0)", "hex(zeroblob(9))",
    "current_time",
]  # fmt: skip
FUNCTIONS = [
    "count", "sum", "max", "abs", "date", "strftime", "datetime", "julianday", "printf", "hex",
    "zeroblob", "randomblob", "load_extension", "json_extract", "group_concat", "replace",
    "instr", "char", "nosuch", "fts3_tokenizer", "writefile", "substr", "cast", "unicode",
    "quote", "random", "row_number",
]  # fmt: skip
HEADS = [
    "DELETE FROM odd", "UPDATE visits SET cost = 0", "INSERT INTO odd VALUES (1, 2, 3)",
    "DROP TABLE odd", "CREATE TABLE {n} (a)", "CREATE TEMP TABLE visits (a)",
    "ATTACH '{d}/{n}.db' AS {n}", "VACUUM INTO '{d}/{n}'", "ATTACH 'file:{d}/{n}?mode=rwc' AS a",
    "PRAGMA journal_mode=WAL", "PRAGMA writable_schema=1", "BEGIN", "COMMIT", "SAVEPOINT a",
    "REINDEX", "ANALYZE", "DETACH main", "CREATE TEMP VIEW visits AS SELECT 1", "ROLLBACK",
    "PRAGMA temp_store_directory='{d}'", "EXPLAIN QUERY PLAN DELETE FROM odd",
    "SELECT writefile('{d}/{n}', 1)", "PRAGMA case_sensitive_like=1",
    "CREATE TEMP TRIGGER t AFTER INSERT ON odd BEGIN SELECT 1; END",
]  # fmt: skip
BOMBS = [
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c",
    "SELECT count(*) FROM visits a, visits b, visits c", "SELECT hex(zeroblob(400000000))",
    "SELECT printf('%.*c', 900000000, 'x')", "SELECT sum(length(randomblob(900000))) FROM visits",
    "SELECT group_concat(hex(randomblob(1000))) FROM visits a, visits b",
]  # fmt: skip
TAILS = [
    "", "", "", ";", ";;", " -- x", "; SELECT 1", "; DROP TABLE odd", " /* ", "\x00", "\ufeff",
    " LIMIT 3", " ORDER BY 1", " UNION SELECT 1", ")", "'", " RETURNING *", " -- \n;",
]  # fmt: skip


def expression(rng: random.Random, depth: int = 0) -> str:
    pick = rng.random()
    if depth > 3 or pick < 0.4:
        return rng.choice(LITERALS if rng.random() < 0.6 else NAMES)
    if pick < 0.7:
        arguments = ", ".join(expression(rng, depth + 1) for _ in range(rng.randrange(4)))
        return f"{rng.choice(FUNCTIONS)}({arguments})"
    if pick < 0.8:
        return f"(SELECT {expression(rng, depth + 1)} FROM {rng.choice(NAMES)} LIMIT 2)"
    operator = rng.choice(
        ["+", "/", "||", "=", "LIKE", "IS NOT", "->>", "%", "<<", "COLLATE NOCASE ="]
    )
    return f"{expression(rng, depth + 1)} {operator} {expression(rng, depth + 1)}"


def statement(rng: random.Random, folder: Path) -> str:
    pick = rng.random()
    if pick < 0.5:
        columns = ", ".join(expression(rng) for _ in range(rng.randrange(1, 4)))
        sql = f"SELECT {columns} FROM {rng.choice(NAMES)}"
        if rng.random() < 0.5:
            sql += f" WHERE {expression(rng)}"
    elif pick < 0.75:
        sql = rng.choice(HEADS).format(d=folder, n=f"f{rng.randrange(10**6)}")
        if rng.random() < 0.3:
            sql = "WITH x AS (SELECT 1) " + sql
    elif pick < 0.76:
        sql = rng.choice(BOMBS)
    elif pick < 0.9:
        words = [
            *NAMES,
            *LITERALS,
            *FUNCTIONS,
            *TAILS,
            "SELECT",
            "FROM",
            "WITH",
            "(",
            ")",
            ",",
            "*",
        ]
        sql = " ".join(rng.choices(words, k=rng.randrange(1, 25)))
    else:
        ranges = [(0, 128), (0xD800, 0xE000), (0, 0x110000)]
        sql = "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(60)))
    sql += rng.choice(TAILS)
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        at = rng.randrange(len(sql) + 1)
        sql = (
            sql[:at]
            + rng.choice(["", "'", ";", " ", "(", "--", "\n", '"', "now", "%"])
            + sql[at + rng.randrange(3) :]
        )
    return sql


def fuzz(pool: SandboxPool, folder: Path, inputs: int, seed: int) -> None:
    def files() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in folder.rglob("*")}

    before, canary = files(), pool.query(CANARY)
    assert canary.error is None
    rng = random.Random(seed)

    def texts() -> Iterator[tuple[int, str]]:
        for i in range(inputs):
            yield i, statement(rng, folder)

    def check(item: tuple[int, str]) -> str | None:
        i, sql = item
        started = time.monotonic()
        result = pool.query(sql)
        spent = time.monotonic() - started
        if spent > SECONDS + PATIENCE:
            return f"{spent:.1f} s: {sql!r}"
        if Result.from_json(result.to_json()) != result or (result.error and result.rows):
            return f"not a clean result: {sql!r}"
        shown = observation(result).replace("\n", "", result.n_rows + 2)
        bad = {"Cc", "Cs", "Zl", "Zp"}.intersection(
            map(unicodedata.category, shown + rendered(result))
        )
        if bad or observation(result).count("\n") > min(result.n_rows, 10) + 1:
            return f"a cell broke out: {sql!r}"
        look = i % 20 == 0 or (result.error is None and "SELECT" not in sql)
        if look and pool.query(CANARY) != canary:
            return f"left a trace: {sql!r}"
        if i % 200 == 0 and files() != before:
            return f"changed a file: {sql!r}"
        return None

    with ThreadPoolExecutor(2) as threads:
        faults = [fault for fault in threads.map(check, texts()) if fault]
    assert not faults, faults[:5]
    assert files() == before
    assert [pool.query(CANARY) for _ in range(4)] == [canary] * 4
    assert len(pool._all) == 2


@pytest.fixture
def fuzzed(database: Path, tmp_path: Path) -> Iterator[SandboxPool]:
    copy = tmp_path / "fuzz.sqlite"
    copy.write_bytes(database.read_bytes())
    with SandboxPool(copy, CLOCK, 2, Limits(seconds=SECONDS, max_rows=200)) as pool:
        yield pool


def test_five_hundred_inputs(fuzzed: SandboxPool, tmp_path: Path) -> None:
    fuzz(fuzzed, tmp_path, 500, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_thousand_inputs(fuzzed: SandboxPool, tmp_path: Path) -> None:
    fuzz(fuzzed, tmp_path, 20_000, seed=2)
