"""Does a database fit the questions and the clock? Cheap checks, before anything runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sentinel.benchmarks.base import DataError, Task
from sentinel.sql.clock import vital_ranges

_BEGINNINGS = (
    ("admissions", "admittime"),
    ("transfers", "intime"),
    ("patient", "hospitaladmittime"),
)
"""When something began: no database holds one that is later than its present."""
_LATEST_DAYS = 366


@contextmanager
def read_only(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. Raises DataError where the file is no database."""
    connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("select count(*) from sqlite_master").fetchone()
        yield connection
    except sqlite3.DatabaseError as error:
        raise DataError(f"{database} is no database: {error}", "check the path") from error
    finally:
        connection.close()


def check_clock_fits(database: Path, clock: str) -> None:
    """Refuse a database whose last admission is later than the clock, or a year before it.

    The data sets shift each patient's time to end at their clock; with another one every question
    about the present has another answer, and nothing fails. A database without the tables that tell
    is not refused. Raises DataError.
    """
    with read_only(database) as connection:
        columns = {
            (t.lower(), c.lower())
            for (t,) in connection.execute("select name from sqlite_master where type = 'table'")
            for _, c, *_ in connection.execute(f'pragma table_info("{t}")')
        }
        found: list[str] = []
        for table, column in _BEGINNINGS:
            if (table, column) in columns:
                (last,) = connection.execute(f"select max({column}) from {table}").fetchone()
                found += [str(last)] if last is not None else []
        if not found:
            return
        last = max(found)
        (days,) = connection.execute("select julianday(?) - julianday(?)", (clock, last)).fetchone()
    if days is None:
        raise DataError(
            f"the last admission of {database} is of {last!r}, which is no time to SQLite",
            "write times as YYYY-MM-DD HH:MM:SS, as `sentinel prepare ehrsql` does",
        )
    if not 0 <= days <= _LATEST_DAYS:
        relation = "after" if days < 0 else "more than a year before"
        raise DataError(
            f"the last admission of {database} is of {last}, {relation} the clock {clock}",
            "set clock to the present of this database (MIMIC-III: 2105-12-31 23:59:00, "
            "MIMIC-IV demo: 2100-12-31 23:59:00), or name the other database",
        )


def check_gold_compiles(database: Path, tasks: Iterable[Task]) -> None:
    """Refuse a database that one gold query of some group cannot be compiled on.

    One query per group: all of them are run by `sentinel doctor`. Raises DataError.
    """
    seen: set[str] = set()
    faults: list[str] = []
    with read_only(database) as connection:
        for task in tasks:
            if task.gold is None or task.group in seen:
                continue
            seen.add(task.group)
            try:
                connection.execute(f"explain {vital_ranges(task.gold)}").close()
            except sqlite3.Error as error:
                faults.append(f"{task.task_id}: {error}")
    if faults:
        raise DataError(
            f"gold queries of {len(faults)} of {len(seen)} groups do not run on {database} "
            f"(first: {faults[0]})",
            "name the database that these questions are about",
        )
