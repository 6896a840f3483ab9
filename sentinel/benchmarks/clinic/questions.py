"""The seeded question generator: template, paraphrase and slot values, checked on the database.

Two *sides* share every template: a fixed hash of the gold SQL (of the values, for an unanswerable
topic) puts a question on the benchmark's side or on the side that agents are trained on. So the
two never share a question text, a tuple of values or a gold query, whatever seeds and sizes are
chosen. Groups are filled evenly, so that no template dominates a pool.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sentinel.benchmarks.clinic.templates.base import Template, Topic
from sentinel.benchmarks.clinic.values import Row, Sources, Value, fill_sql, fill_text
from sentinel.errors import UserError

BENCHMARK, AGENT = 0, 1
KEEP_EMPTY = 0.03
"""Share of drawn empty or null results that stay: an empty result is not proof of anything."""
KEEP_ZERO = 0.35
"""Share of drawn counts of zero that stay (a real value, but a dull one)."""
_TRIES = 30
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Question:
    """One generated question; `sql` is None for an unanswerable one."""

    source: Template | Topic
    paraphrase: int
    text: str
    sql: str | None
    values: Mapping[str, str]


class Checker:
    """Runs gold SQL on a clock-bound connection and says whether it gives a real, certain value."""

    def __init__(self, connection: sqlite3.Connection, bind: Callable[[str], str]) -> None:
        self._connection, self._bind = connection, bind
        self._seen: dict[str, str] = {}

    def verdict(self, sql: str) -> str:
        """`value`, `zero`, `empty`, or `unsure` where the answer hangs on the order of rows."""
        if sql not in self._seen:
            self._seen[sql] = self._judge(self._bind(sql))
        return self._seen[sql]

    def _judge(self, sql: str) -> str:
        rows = self._connection.execute(sql).fetchall()
        if " limit " in sql:
            # ties at a limit: SQLite itself can be asked to walk unordered rows backwards
            self._connection.execute("pragma reverse_unordered_selects = on")
            reverse = self._connection.execute(sql).fetchall()
            self._connection.execute("pragma reverse_unordered_selects = off")
            if sorted(map(repr, reverse)) != sorted(map(repr, rows)):
                return "unsure"
        if not rows or all(cell is None for row in rows for cell in row):
            return "empty"
        return "zero" if rows == [(0,)] else "value"


def side_of(key: str) -> int:
    """BENCHMARK or AGENT: a fixed, even split of gold queries and of topics' values."""
    return hashlib.sha256(f"side {key}".encode()).digest()[0] & 1


class _Stream:
    """Questions of one template on one side, drawn without repeating a text (or its values)."""

    def __init__(
        self, source: Template | Topic, side: int, seed: int, sources: Sources, repeat_values: bool
    ) -> None:
        key = int.from_bytes(hashlib.sha256(source.id.encode()).digest()[:6], "big")
        self._rng = np.random.Generator(np.random.PCG64([seed, side, key]))
        self._source, self._side, self._repeat = source, side, repeat_values
        self._tables = [sources.rows(name) for name in source.slots]
        self._texts: set[str] = set()
        self._values: set[str] = set()
        self._misses = 0

    def take(self, n: int, checker: Checker, taken: set[str]) -> list[Question]:
        """Up to n more questions; fewer when the template's values are used up."""
        found: list[Question] = []
        # misses in a row mean that the values are used up (or that hardly any gives a result)
        while len(found) < n and self._misses < _TRIES * (8 if self._small else 3):
            question = self._draw(checker, taken)
            if question is None:
                self._misses += 1
                continue
            self._misses = 0
            found.append(question)
        return found

    @property
    def _small(self) -> bool:
        size = 1
        for table in self._tables:
            size *= len(table)
        return size < 2_000

    def _below(self, n: int) -> int:
        return int(self._rng.random() * n)

    def _draw(self, checker: Checker, taken: set[str]) -> Question | None:
        source = self._source
        row: dict[str, Value] = {}
        for table in self._tables:
            row.update(table[self._below(len(table))])
        return self._make(source, row, checker, taken)

    def _make(
        self, source: Template | Topic, row: Row, checker: Checker, taken: set[str]
    ) -> Question | None:
        paraphrase, luck = self._below(len(source.asks)), self._rng.random()
        values = {name: value.literal for name, value in row.items()}
        key = repr(sorted(values.items()))
        sql = fill_sql(source.sql, row) if isinstance(source, Template) else None
        text = fill_text(source.asks[paraphrase], row)
        if side_of(sql or f"{source.id} {key}") != self._side or text in taken:
            return None
        if sql is not None:
            if key in self._values and not self._repeat:
                return None
            verdict = checker.verdict(sql)
            keep = {"value": 1.0, "zero": KEEP_ZERO, "empty": KEEP_EMPTY, "unsure": 0.0}[verdict]
            if luck >= keep:
                return None
        self._values.add(key)
        taken.add(text)
        return Question(source, paraphrase, text, sql, values)


def generate(
    sources: Sources,
    checker: Checker,
    pool: Iterable[Template | Topic],
    *,
    side: int,
    seed: int,
    n: int,
    taken: set[str],
) -> list[Question]:
    """n questions spread evenly over the templates (or topics), in random order.

    Templates with few values give what they have, the others make up for it. `taken` holds texts
    that must not come again and grows by those made. Raises UserError when n cannot be reached.
    """
    streams = [_Stream(item, side, seed, sources, side == AGENT) for item in pool]
    rng = np.random.Generator(np.random.PCG64([seed, side, 7]))
    streams = _shuffled(streams, rng)
    questions: list[Question] = []
    while streams and len(questions) < n:
        missing = n - len(questions)
        share, rest = divmod(missing, len(streams))
        alive = []
        for i, stream in enumerate(streams):
            wanted = share + (i < rest)
            got = stream.take(wanted, checker, taken) if wanted else []
            questions += got
            if len(got) == wanted:
                alive.append(stream)
        streams = alive
    if len(questions) < n:
        raise UserError(
            f"clinic: only {len(questions)} different questions of {n} can be made",
            "ask for fewer questions or for more patients",
        )
    return _shuffled(questions, rng)


def _shuffled(items: Sequence[_T], rng: np.random.Generator) -> list[_T]:
    """A permutation by sorting uniform doubles: the same on every platform and version."""
    keys = rng.random(len(items))
    return [items[i] for i in np.argsort(keys, kind="stable")]
