"""The database's clock inside a worker: SQLite's functions of time with another idea of now.

The replacements call SQLite's own arithmetic on a second, empty connection, so that a date is bit
for bit SQLite's. Standard library only, as `worker`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

CACHED_DATES = 50_000


class Clock:
    """SQLite's functions of time with another idea of now."""

    NAMES = ("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff")

    def __init__(self, now: str) -> None:
        self._now = now
        self._sqlite = sqlite3.connect(":memory:", isolation_level=None)
        self._cache: dict[tuple[Any, ...], Any] = {}
        # Since 3.42 a leading 'subsec' means "now, with fractions".
        self._implied = {"subsec", "subsecond"} if sqlite3.sqlite_version_info >= (3, 42) else set()
        known = {row[0] for row in self._sqlite.execute("PRAGMA function_list")}
        self.names = [name for name in self.NAMES if name in known]
        self._sql = {name: f"SELECT {name}(%s)" for name in self.names}

    def function(self, name: str) -> Callable[..., Any]:
        """The replacement of one function, for any number of arguments."""
        cache = self._cache

        def call(*args: Any) -> Any:
            key = (name, *args)
            try:
                return cache[key]
            except KeyError:
                pass
            value = self._native(name, args)
            # 1, 1.0 and '1' may print differently but hash alike: only texts are remembered.
            if all(type(arg) is str for arg in args):
                if len(cache) >= CACHED_DATES:
                    cache.clear()
                cache[key] = value
            return value

        return call

    def _native(self, name: str, args: tuple[Any, ...]) -> Any:
        times = list(args)
        if name == "strftime":
            if not times:
                return None
            times[0] = self._format(times[0])
            times[1:] = self._bound(times[1:])
        elif name == "timediff":
            times = [self._bound([t])[0] for t in times]
        else:
            times = self._bound(times)
        marks = ",".join("?" * len(times))
        return self._sqlite.execute(self._sql[name] % marks, times).fetchone()[0]

    def _bound(self, times: list[Any]) -> list[Any]:
        if not times:
            return [self._now]
        first = _c_string(times[0])
        if first == "now":
            return [self._now, *times[1:]]
        return [self._now, *times] if first in self._implied else times

    @staticmethod
    def _format(value: Any) -> Any:
        """`%y` and `%j` as the data set means them: it was lower-cased from `%Y` and `%J`."""
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if not isinstance(value, str) or "%" not in value:
            return value
        head, *rest = value.split("%%")
        parts = [p.replace("%y", "%Y").replace("%j", "%J") for p in (head, *rest)]
        return "%%".join(parts)


def _c_string(value: Any) -> str | None:
    """A text as SQLite's date parser reads it: to the first NUL, lower case; None for numbers."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.split("\0", 1)[0].lower() if isinstance(value, str) else None


def knows_now(uri: str, seconds: float) -> bool:
    """May a cell, a name, a view or a generated column of the database say `now`?

    True as well when the scan takes longer than `seconds`.
    """
    db = sqlite3.connect(uri, uri=True, isolation_level=None)
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > end, 100_000)
    try:
        schema = db.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
        if any(
            name.lower() == "now" or kind == "view" or _computed(sql or "")
            for name, kind, sql in schema
        ):
            return True
        return any(_table_says_now(db, name) for name, kind, _ in schema if kind == "table")
    except sqlite3.Error:
        return True
    finally:
        db.close()


def _computed(sql: str) -> bool:
    words = sql.lower().split()
    return words[:2] == ["create", "virtual"] or "generated" in words or " as (" in " ".join(words)


def _table_says_now(db: sqlite3.Connection, table: str) -> bool:
    quoted = table.replace('"', '""')
    columns = [row[1].replace('"', '""') for row in db.execute(f'PRAGMA table_info("{quoted}")')]
    tests = []
    for column in columns:
        # length() stops at a NUL, as the date parser does.
        tests.append(f"""("{column}" LIKE 'now%' AND length("{column}") = 3)""")
        tests.append(f"""("{column}" LIKE 'subsec%' AND length("{column}") IN (6, 9))""")
        tests.append(f"""typeof("{column}") = 'blob'""")
    # In groups: a wide table would go past the depth of an expression.
    for i in range(0, len(tests), 60):
        where = " OR ".join(tests[i : i + 60])
        if db.execute(f'SELECT 1 FROM "{quoted}" WHERE {where} LIMIT 1').fetchone():
            return True
    return False
