"""The process that runs a model's SQL: executed by `sandbox`, never forked or called in process.

Standard library only: it must start in a few milliseconds and must not see the parent's modules,
threads or devices. One request at a time comes in on standard input, one reply goes out on standard
output, both as a 4-byte length and JSON. The guards, from the inside out:

- an authorizer that lets through SELECT, READ of the schema's own tables, listed functions and
  recursion, so nothing is written, attached, loaded, or left on the connection;
- SQLite limits, a heap limit, and a deadline read by a progress handler;
- kernel limits: no byte into any regular file, a cap on memory, no core file;
- a watchdog thread that ends the process when its parent is gone. (`PR_SET_PDEATHSIG` would also
  fire when merely the parent's *thread* that started the worker ends: routine in a thread pool.)

SQLite's functions of time are replaced as `worker_clock` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import sqlite3
import struct
import threading
import time
from typing import Any

from sentinel.sql.worker_clock import Clock, knows_now

HEADER = struct.Struct(">I")
PROGRESS_OPS = 2000
MAX_ERROR = 500

# Documented functions of SQLite: core, aggregate, window, date, mathematics, JSON, full text.
# Absent on purpose: load_extension, fts3_tokenizer, sqlite_rename_*, and whatever a build adds.
FUNCTIONS = frozenset(
    """
    abs changes char coalesce concat concat_ws format glob hex if ifnull iif instr
    last_insert_rowid length like likelihood likely lower ltrim max min nullif octet_length
    printf quote random randomblob replace round rtrim sign soundex sqlite_compileoption_get
    sqlite_compileoption_used sqlite_source_id sqlite_version substr substring total_changes
    trim typeof unhex unicode unistr unistr_quote unlikely upper zeroblob avg count
    group_concat string_agg sum total median percentile percentile_cont percentile_disc
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
    row_number current_date current_time current_timestamp date datetime julianday strftime
    time timediff unixepoch acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh
    degrees exp floor ln log log10 log2 mod pi pow power radians sin sinh sqrt tan tanh
    trunc json json_array json_array_length json_each json_error_position json_extract
    json_group_array json_group_object json_insert json_object json_patch json_pretty
    json_quote json_remove json_replace json_set json_tree json_type json_valid jsonb
    jsonb_array jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object
    jsonb_patch jsonb_remove jsonb_replace jsonb_set subtype -> ->> match regexp bm25
    highlight snippet offsets
    """.split()  # noqa: SIM905 - a list of words reads better
)
TABLE_FUNCTIONS = ("json_each", "json_tree")
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 50_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 100,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class Database:
    """The read-only database, and the guards that every statement passes."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.uri: str = config["uri"]
        self._heap = int(config["heap_bytes"])
        self._clock_text: str = config["clock"]
        self._clock = Clock(self._clock_text)
        self._rng = random.Random(0)
        self._deadline = 0.0
        self._tables: frozenset[str] = frozenset()
        self._connections: dict[bool, sqlite3.Connection] = {}

    def connect(self, *, plain: bool = False) -> sqlite3.Connection:
        """A guarded connection, fresh or left by a statement that succeeded.

        `plain` leaves SQLite's own functions of time in place, for texts that are certain to name
        no other now than the keywords.
        """
        if plain not in self._connections:
            self._connections[plain] = self._open(plain)
        return self._connections[plain]

    def discard(self) -> None:
        """Give the connections up: whatever a failed statement left goes with them."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _open(self, plain: bool) -> sqlite3.Connection:
        db = sqlite3.connect(self.uri, uri=True, isolation_level=None, cached_statements=0)
        db.text_factory = _text
        db.execute("PRAGMA temp_store=MEMORY").fetchall()
        db.execute(f"PRAGMA hard_heap_limit={self._heap}").fetchall()
        self._tables = self._readable(db)
        for name in () if plain else self._clock.names:
            db.create_function(name, -1, self._clock.function(name), deterministic=True)
        now = self._clock_text
        for name, value in (
            ("current_time", now),
            ("current_timestamp", now),
            ("current_date", now[:10]),
        ):
            db.create_function(name, 0, lambda value=value: value, deterministic=True)
        db.create_function("random", 0, lambda: self._rng.getrandbits(64) - 2**63)
        db.create_function("randomblob", 1, self._randomblob)
        for limit, most in LIMITS.items():
            db.setlimit(limit, most)
        db.set_authorizer(self._authorize)
        db.set_progress_handler(self._late, PROGRESS_OPS)
        return db

    @staticmethod
    def _readable(db: sqlite3.Connection) -> frozenset[str]:
        """Lower-case names that may be read; opens the virtual ones.

        A virtual table declares its columns with a CREATE that the authorizer would refuse, so the
        allowed ones are opened before it is set; no other can be opened afterwards.
        """
        names = set(TABLE_FUNCTIONS)
        virtual = list(TABLE_FUNCTIONS)
        listing = "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        for name, sql in db.execute(listing).fetchall():
            names.add(name.lower())
            if (sql or "").lstrip()[:14].upper() == "CREATE VIRTUAL":
                virtual.append(name)
        for name in virtual:
            quoted = name.replace('"', '""')
            # A module or function that this SQLite lacks: queries that need it will say so.
            with contextlib.suppress(sqlite3.Error):
                db.execute(f'SELECT 1 FROM "{quoted}" LIMIT 0').fetchall()
        return frozenset(names | {"sqlite_master", "sqlite_schema"})

    def start(self, sql: str, deadline: float) -> None:
        """Arm the deadline (monotonic seconds) and the statement's own random numbers."""
        self._deadline = deadline
        self._rng.seed(sql)

    def _late(self) -> int:
        return time.monotonic() > self._deadline

    def _randomblob(self, size: Any) -> bytes:
        n = int(size) if isinstance(size, (int, float)) and size - size == 0 else 1
        # One byte too many is refused by SQLite itself, with its own message.
        return self._rng.randbytes(min(max(1, n), LIMITS[sqlite3.SQLITE_LIMIT_LENGTH] + 1))

    def _authorize(
        self, action: int, a: str | None, b: str | None, schema: str | None, _: str | None
    ) -> int:
        if action == sqlite3.SQLITE_SELECT or action == sqlite3.SQLITE_RECURSIVE:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            name = (a or "").lower()
            if name in self._tables:
                return sqlite3.SQLITE_OK
            # No column is read: `count(*)` over a common table expression, under its own name.
            inner = not b and not name.startswith(("pragma_", "sqlite_"))
            return sqlite3.SQLITE_OK if inner else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            known = b is not None and b.lower() in FUNCTIONS
            return sqlite3.SQLITE_OK if known else sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """One value for JSON; `sentinel.sql.result` reads the same form."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is int:
        return value if -(2**53) <= value <= 2**53 else {"int": str(value)}
    if kind is float:
        return value if value - value == 0 else {"float": repr(value)}
    return {"blob": value.hex()}


def _size(row: tuple[Any, ...]) -> int:
    return sum(len(v) + 8 if isinstance(v, (str, bytes)) else 16 for v in row)


def _run(database: Database, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    sql, seconds = request["sql"], request["seconds"]
    max_rows, max_bytes = request["max_rows"], request["max_bytes"]
    reply: dict[str, Any] = {"columns": [], "rows": [], "truncated": False, "error": None}
    database.start(sql, time.monotonic() + seconds)
    try:
        plain = request.get("plain")
        if plain is None:
            cursor = database.connect().execute(sql)
        else:
            cursor = database.connect(plain=True).execute(plain)
        if cursor.description is None:
            raise sqlite3.ProgrammingError("no result set: the text holds no query")
        columns = [column[0] for column in cursor.description]
        rows: list[list[Any]] = []
        size = 0
        for row in cursor:
            size += _size(row)
            if len(rows) >= max_rows or size > max_bytes:
                reply["truncated"] = True
                cursor.close()
                break
            rows.append([_cell(value) for value in row])
        reply["columns"], reply["rows"] = columns, rows
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        database.discard()
        reply["error"] = _message(error, seconds)
    except MemoryError:
        database.discard()
        reply["error"], reply["retire"] = "out of memory", True
    reply["seconds"] = time.perf_counter() - started
    return reply


def _message(error: Exception, seconds: float) -> str:
    text = str(error)
    if text == "interrupted":
        return f"timeout: the query ran longer than {seconds:g} s"
    return " ".join(text.split())[:MAX_ERROR] or type(error).__name__


def _read(n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def _write(message: dict[str, Any]) -> None:
    payload = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii")
    view = memoryview(HEADER.pack(len(payload)) + payload)
    while view:
        view = view[os.write(1, view) :]


def _watch(lifeline: int, parent: int) -> None:
    """End with the parent: its end of the lifeline closes, or we are handed to another parent."""
    while os.getppid() == parent:
        if select.select([lifeline], [], [], 1.0)[0]:
            break
    os._exit(0)


def main(config: dict[str, Any]) -> None:
    """Serve statements until standard input ends."""
    threading.stack_size(256 * 1024)
    watch = threading.Thread(
        target=_watch, args=(config["lifeline"], config["parent"]), daemon=True
    )
    watch.start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    memory = int(config["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    database = Database(config)
    try:
        database.connect().execute("SELECT count(*) FROM sqlite_master").fetchall()
        _write({"ready": True, "sqlite": sqlite3.sqlite_version})
    except sqlite3.Error as error:
        _write({"ready": False, "error": str(error)})
        return
    while True:
        request = json.loads(_read(HEADER.unpack(_read(HEADER.size))[0]))
        if "probe_seconds" in request:
            _write({"knows_now": knows_now(database.uri, request["probe_seconds"])})
        else:
            _write(_run(database, request))
