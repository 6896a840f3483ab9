"""The SQL sandbox against bare SQLite, on the gold queries of the embedded hospital.

Bars: 2,000 runs a second of the median gold query on two workers; at most 0.3 ms added to a query;
all gold queries in at most 1.3 times the time of bare SQLite.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Line, check_baseline, main, pairs_of, seconds, summary

from sentinel.benchmarks.clinic import ClinicBenchmark
from sentinel.sql.clock import bind
from sentinel.sql.sandbox import Limits, SandboxPool, database_uri

BARE_MEDIAN_SECONDS = 0.08e-3
PATIENTS = 1100
"""A hospital on which the median gold query takes bare SQLite about that long."""


def bench(tiny: bool) -> Iterator[Line]:
    """Yield the three figures."""
    with tempfile.TemporaryDirectory() as folder:
        clinic = ClinicBenchmark(
            n_questions=100 if tiny else 400, patients=360 if tiny else PATIENTS
        )
        clinic.prepare(Path(folder))
        assert clinic.database is not None
        golds = sorted({task.gold for task in clinic.tasks() if task.gold})
        yield from measure(clinic.database, clinic.clock, golds, tiny)
        clinic.close()


def measure(database: Path, clock: str, golds: list[str], tiny: bool) -> Iterator[Line]:
    """Yield the figures for these queries; both sides give the same rows first of all."""
    bare = sqlite3.connect(database_uri(database), uri=True)
    bound = [bind(sql, clock) for sql in golds]
    with SandboxPool(database, clock, 2, Limits(seconds=30)) as pool:
        for sql, text in zip(golds, bound, strict=True):
            result = pool.query(sql)
            assert result.error is None, (sql, result.error)
            assert result.rows == tuple(bare.execute(text).fetchall()), sql

        singles = [fastest(bare, text) for text in bound]
        median = statistics.median_low(singles)
        at = singles.index(median)
        print(f"bare_median {median * 1e3:.4g} ms")
        print(f"gold_queries {len(golds)} queries")
        if not tiny:
            check_baseline("bare_median_seconds", median, BARE_MEDIAN_SECONDS)

        yield throughput(pool, golds[at], 200 if tiny else 4000)

        repeats = 50 if tiny else 500
        pairs = pairs_of(
            lambda: [bare.execute(bound[at]).fetchall() for _ in range(repeats)],
            lambda: [pool.query(golds[at]) for _ in range(repeats)],
            3 if tiny else 7,
        )
        added = summary((b - a) / repeats * 1e3 for a, b in pairs)
        yield Line("sandbox_added", added, "ms", at_most=0.3)

        pairs = pairs_of(
            lambda: [bare.execute(text).fetchall() for text in bound],
            lambda: [pool.query(sql) for sql in golds],
            3 if tiny else 7,
        )
        yield Line("sandbox_all_gold", summary(b / a for a, b in pairs), "x bare", at_most=1.3)
    bare.close()


def fastest(bare: sqlite3.Connection, sql: str) -> float:
    """Seconds of the best of five runs."""
    return min(seconds(lambda: bare.execute(sql).fetchall()) for _ in range(5))


def throughput(pool: SandboxPool, sql: str, queries: int) -> Line:
    """Runs per second of one query from two threads on two workers."""
    with ThreadPoolExecutor(2) as threads:

        def half() -> None:
            for _ in range(queries // 2):
                pool.query(sql)

        def both() -> None:
            for job in [threads.submit(half), threads.submit(half)]:
                job.result()

        both()
        rates = summary(queries / seconds(both) for _ in range(3 if queries < 1000 else 7))
    return Line("sandbox_rate", rates, "queries/s", at_least=2000)


if __name__ == "__main__":
    sys.exit(main(__doc__, bench))
