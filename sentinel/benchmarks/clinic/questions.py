"""The seeded question generator: template, paraphrase and slot values, checked on the database.

Two *sides* share every template: the gold SQL (the values, for an unanswerable topic) decides, by
a fixed hash, whether a question is the benchmark's or one that agents are trained on; where a
template has few values, they are ranked by the hash and dealt in turn, so that both get half. So
the two never share a question text, a tuple of values or a gold query, whatever seeds and sizes are
chosen for one hospital. Groups are filled evenly, so that no template dominates a pool.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sentinel.benchmarks.clinic.templates.base import Template, Topic
from sentinel.benchmarks.clinic.values import Row, Sources, Value, fill_sql, fill_text
from sentinel.errors import UserError

BENCHMARK, AGENT = 0, 1
_KEEP = {"value": 1.0, "zero": 0.35, "empty": 0.03, "unsure": 0.0}
"""Share of drawn questions that stay, by verdict. Some empty results do: an empty result proves
nothing. A count of zero is a real value, but a dull one."""
_SMALL = 2_000
"""Tuples of values up to which a template's are dealt to the two sides in turn."""
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


def _rank(key: str) -> bytes:
    return hashlib.sha256(f"side {key}".encode()).digest()


class _Sides:
    """BENCHMARK or AGENT for each tuple of values of one template, whatever the seed."""

    def __init__(self, source: Template | Topic, tables: Sequence[Sequence[Row]]) -> None:
        self._source = source
        self._dealt: dict[str, int] | None = None
        self.size = math.prod(map(len, tables))
        if self.size <= _SMALL:
            keys = {self.key(_merged(rows)) for rows in itertools.product(*tables)}
            self._dealt = {key: i & 1 for i, key in enumerate(sorted(keys, key=_rank))}

    def key(self, row: Row) -> str:
        """What identifies a question whatever its wording: gold SQL, or topic and values."""
        if isinstance(self._source, Template):
            return fill_sql(self._source.sql, row)
        return f"{self._source.id} {sorted((name, v.literal) for name, v in row.items())}"

    def of(self, key: str) -> int:
        return self._dealt[key] if self._dealt is not None else _rank(key)[0] & 1


def _merged(rows: Iterable[Row]) -> Row:
    merged: dict[str, Value] = {}
    for row in rows:
        merged.update(row)
    return merged


class _Stream:
    """Questions of one template on one side, drawn without repeating a text (or its values)."""

    def __init__(
        self, source: Template | Topic, side: int, seed: int, sources: Sources, repeat_values: bool
    ) -> None:
        name = int.from_bytes(hashlib.sha256(source.id.encode()).digest()[:6], "big")
        self._rng = np.random.Generator(np.random.PCG64([seed, side, name]))
        self._source, self._side, self._repeat = source, side, repeat_values
        self._tables = [sources.rows(slot) for slot in source.slots]
        self._sides = _Sides(source, self._tables)
        self._used: set[str] = set()
        self._patience = 300 if self._sides.size <= _SMALL else 100
        self._misses = 0

    def take(self, n: int, checker: Checker, taken: set[str]) -> list[Question]:
        """Up to n more questions; fewer when the template's values are used up."""
        found: list[Question] = []
        # many misses in a row: the values are used up, or hardly any gives a result
        while len(found) < n and self._misses < self._patience:
            question = self._draw(checker, taken)
            if question is None:
                self._misses += 1
                continue
            self._misses = 0
            found.append(question)
        return found

    def _below(self, n: int) -> int:
        return int(self._rng.random() * n)

    def _draw(self, checker: Checker, taken: set[str]) -> Question | None:
        source = self._source
        row = _merged(table[self._below(len(table))] for table in self._tables)
        paraphrase, luck = self._below(len(source.asks)), self._rng.random()
        text, key = fill_text(source.asks[paraphrase], row), self._sides.key(row)
        if text in taken or self._sides.of(key) != self._side:
            return None
        sql = key if isinstance(source, Template) else None
        if sql is not None:
            if key in self._used and not self._repeat:
                return None
            if luck >= _KEEP[checker.verdict(sql)]:
                return None
        self._used.add(key)
        taken.add(text)
        values = {name: value.literal for name, value in row.items()}
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
