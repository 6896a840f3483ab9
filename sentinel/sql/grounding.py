"""Does a query speak about the schema it runs on? References, join predicates and literals.

Feeds the schema family of the trajectory features (the paper, Section 4.1 and Appendix I). The
parser only *reads* the query: nothing it prints is ever executed. Where it cannot be sure (table
functions, `rowid`, `sqlite_master`, outputs without a name, a CTE that mentions itself) a reference
is not counted. Where it cannot read at all (syntax only SQLite knows, nesting beyond the stack, a
second statement) there is no result, and the feature is missing.

A double-quoted name that resolves to nothing is what SQLite makes of it: a string. It counts as a
literal of the query, not as a failed reference; with a qualifier (`t."x"`), in brackets or in
backticks it is an error in SQLite and counts as failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from sentinel.sql.literals import Literal, literals_of, quoted_literal
from sentinel.sql.schema import Base, Schema

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # unknown statements are a value here

MAX_SQL = 20_000
"""Longer queries are not parsed: their features are missing."""


_ROWID = frozenset({"rowid", "oid", "_rowid_"})
_EPONYMOUS = frozenset({"json_each", "json_tree", "generate_series", "dbstat", "bytecode"})


@dataclass(frozen=True, slots=True)
class Grounding:
    """What one query refers to.

    `failed_refs`: occurrences of table or column references that do not resolve, alias-aware.
    `bad_joins`: equality predicates (ON, WHERE, USING, NATURAL) between columns of two different
    tables whose pair is no declared foreign key in either direction; None where the database
    declares none. `literals`: every literal of the query.
    """

    failed_refs: int
    bad_joins: int | None
    literals: tuple[Literal, ...]


@lru_cache(maxsize=8192)
def ground(sql: str, schema: Schema) -> Grounding | None:
    """Resolve a query against a schema; None where the parser cannot read it as one query.

    >>> schema = Schema({"patients": ("subject_id", "gender")})
    >>> ground("SELECT p.sex FROM patients AS p", schema).failed_refs
    1
    """
    if len(sql) > MAX_SQL:
        return None
    try:
        query = parse_query(sql)
        if query is None:
            return None
        resolver = _Resolver(sql, schema)
        resolver.query(query, None, {})
        literals = (*literals_of(query), *map(quoted_literal, resolver.strings))
    except (RecursionError, sqlglot.errors.SqlglotError, ValueError, ArithmeticError):
        return None
    bad = resolver.bad_joins if schema.foreign_keys else None
    return Grounding(resolver.failed_refs, bad, literals)


def parse_query(sql: str) -> exp.Expression | None:
    """The one SELECT, VALUES or compound query in a text, decorated or not; else None.

    Raises RecursionError or SqlglotError where the text is beyond the parser.
    """
    found: list[Any] = []
    for parsed in sqlglot.parse(sql, read="sqlite"):
        parts = parsed.expressions if isinstance(parsed, exp.Block) else [parsed]
        found += [p for p in parts if p is not None and not isinstance(p, exp.Semicolon)]
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        return None
    query: Any = found[0]
    return query


@dataclass(slots=True)
class _Source:
    """One entry of a FROM clause. `open`: it may have columns that are not listed."""

    alias: str
    columns: dict[str, Base | None]
    open: bool = False
    stored: bool = False


@dataclass(slots=True)
class _Scope:
    sources: list[_Source]
    outer: _Scope | None
    ctes: dict[str, _Source]
    aliases: set[str] = field(default_factory=set)
    aliases_visible: bool = False


_OK, _UNSURE, _STRING, _FAILED = "ok", "unsure", "string", "failed"


class _Resolver:
    def __init__(self, sql: str, schema: Schema) -> None:
        self.sql, self.schema = sql, schema
        self.failed_refs = 0
        self.bad_joins = 0
        self.strings: list[exp.Column] = []

    def query(
        self, node: exp.Expression, outer: _Scope | None, ctes: dict[str, _Source]
    ) -> _Source:
        """Resolve one query; returns its output columns as a nameless source."""
        while isinstance(node, (exp.Subquery, exp.Paren)):
            node = node.this
        ctes = self._ctes(node, outer, ctes)
        if isinstance(node, exp.SetOperation):
            # ORDER BY of a compound names output columns of any arm: unsure, not counted
            left = self.query(node.this, outer, ctes)
            self.query(node.expression, outer, ctes)
            return left
        if isinstance(node, exp.Select):
            return self._select(node, outer, ctes)
        self._walk(list(node.iter_expressions()), _Scope([], outer, ctes))
        return _Source("", {}, open=True)

    def _ctes(
        self, node: exp.Expression, outer: _Scope | None, ctes: dict[str, _Source]
    ) -> dict[str, _Source]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        ctes = dict(ctes)
        # known to each other before they are read: RECURSIVE is optional in SQLite
        for cte in clause.expressions:
            names = [c.name.lower() for c in cte.args["alias"].columns]
            ctes[cte.alias.lower()] = _Source(cte.alias.lower(), dict.fromkeys(names), not names)
        for cte in clause.expressions:
            name, output = cte.alias.lower(), self.query(cte.this, outer, ctes)
            ctes[name] = _renamed(name, output, cte.args["alias"])
        return ctes

    def _select(self, node: exp.Select, outer: _Scope | None, ctes: dict[str, _Source]) -> _Source:
        scope = _Scope([], outer, ctes)
        start = node.args.get("from_")
        conditions = self._add(start.this, scope) if start is not None else []
        conditions += self._joins(node.args.get("joins") or [], scope)
        self._walk(list(node.expressions), scope)
        scope.aliases = {p.alias.lower() for p in node.expressions if isinstance(p, exp.Alias)}
        scope.aliases_visible = True
        skip = {"from_", "joins", "with_", "expressions"}
        rest = [value for key, value in node.args.items() if key not in skip]
        self._walk([*conditions, *_expressions(rest)], scope)
        return self._output(node, scope)

    def _joins(self, joins: list[exp.Join], scope: _Scope) -> list[exp.Expression]:
        """Add the joined sources; USING and NATURAL predicates are settled here, ON is returned."""
        conditions: list[exp.Expression] = []
        for join in joins:
            left = list(scope.sources)
            conditions += self._add(join.this, scope)
            right = scope.sources[len(left) :]
            shared = [c.name.lower() for c in join.args.get("using") or []]
            for name in shared:
                if any(_lacks(side, name) for side in (left, right)):
                    self.failed_refs += 1
            if join.method == "NATURAL":
                shared = [name for source in right for name in source.columns]
            for name in dict.fromkeys(shared):
                self._pair(_first(left, name), _first(right, name))
            if join.args.get("on") is not None:
                conditions.append(join.args["on"])
        return conditions

    def _add(self, item: exp.Expression, scope: _Scope) -> list[exp.Expression]:
        """One FROM item into the scope; returns the ON conditions of a parenthesised join."""
        if isinstance(item, exp.Subquery) and isinstance(item.this, (exp.Table, exp.Subquery)):
            inner = item.this
            if isinstance(inner, exp.Table) or inner.args.get("joins") or inner.alias:
                before = len(scope.sources)
                conditions = self._add(inner, scope)
                if isinstance(inner, exp.Subquery):  # a table's own joins were added with it
                    conditions += self._joins(inner.args.get("joins") or [], scope)
                if item.alias:
                    merged = scope.sources[before:]
                    names = {n: b for s in reversed(merged) for n, b in s.columns.items()}
                    is_open = any(s.open for s in merged)
                    scope.sources.append(_Source(item.alias.lower(), names, is_open))
                return conditions
        if isinstance(item, exp.Table):
            scope.sources.append(self._table(item, scope))
            return self._joins(item.args.get("joins") or [], scope)
        if isinstance(item, exp.Subquery):
            output = self.query(item.this, scope.outer, scope.ctes)
            alias = item.args.get("alias")
            scope.sources.append(_renamed(item.alias.lower(), output, alias))
        else:
            scope.sources.append(_Source(item.alias_or_name.lower(), {}, open=True))
            self._walk(list(item.iter_expressions()), _Scope([], scope.outer, scope.ctes))
        return []

    def _table(self, item: exp.Table, scope: _Scope) -> _Source:
        alias, name = item.alias_or_name.lower(), item.name.lower()
        if not isinstance(item.this, exp.Identifier):  # a table function: its columns are its own
            self._walk(list(item.this.iter_expressions()), scope)
            return _Source(alias, {}, open=True)
        if not item.db and name in scope.ctes:
            cte = scope.ctes[name]
            return _Source(alias, dict(cte.columns), cte.open)
        columns = self.schema.tables.get(name)
        if columns is not None and item.db.lower() in ("", "main"):
            return _Source(alias, {c: (name, c) for c in columns}, stored=True)
        if not (name in _EPONYMOUS or name.startswith(("sqlite_", "pragma_"))):
            self.failed_refs += 1
        return _Source(alias, {}, open=True)

    def _walk(self, roots: list[exp.Expression], scope: _Scope) -> None:
        """Count every reference below the roots, each nested query in a scope of its own."""
        stack = list(roots)
        while stack:
            node = stack.pop()
            if isinstance(node, (exp.Query, exp.Values)):
                self.query(node, scope, scope.ctes)
                continue
            if isinstance(node, exp.Column):
                state, _ = self._lookup(node, scope)
                if state == _FAILED:
                    self.failed_refs += 1
                elif state == _STRING:
                    self.strings.append(node)
                continue
            if isinstance(node, exp.EQ):
                for a, b in _column_pairs(node):
                    self._pair(self._lookup(a, scope)[1], self._lookup(b, scope)[1])
            if isinstance(node, exp.In) and isinstance(node.args.get("field"), exp.Column):
                self._table(exp.Table(this=node.args["field"].this), scope)
                stack.append(node.this)
                continue
            if isinstance(node, exp.Table):  # INDEXED BY
                continue
            stack.extend(node.iter_expressions())

    def _lookup(self, column: exp.Column, scope: _Scope | None) -> tuple[str, Base | None]:
        name, qualifier = column.name.lower(), column.table.lower()
        star = isinstance(column.this, exp.Star)
        if not qualifier and name in self.schema.constants and not column.this.args.get("quoted"):
            return _OK, None  # a value by the time SQLite reads it
        while scope is not None:
            unsure = False
            for source in scope.sources:
                if qualifier and source.alias != qualifier:
                    continue
                if star:
                    return _OK, None
                if name in source.columns:
                    return _OK, source.columns[name]
                unsure |= source.open or name in _ROWID
            if unsure or (not qualifier and scope.aliases_visible and name in scope.aliases):
                return _UNSURE, None
            scope = scope.outer
        if not qualifier and self._double_quoted(column.this):
            return _STRING, None
        return _FAILED, None

    def _double_quoted(self, identifier: exp.Expression) -> bool:
        start = identifier.meta.get("start") if isinstance(identifier, exp.Identifier) else None
        return start is not None and self.sql[start : start + 1] == '"'

    def _pair(self, a: Base | None, b: Base | None) -> None:
        # a self-join compares columns of one table: no foreign key can be asked for
        if a and b and a[0] != b[0] and frozenset({a, b}) not in self.schema.foreign_keys:
            self.bad_joins += 1

    def _output(self, node: exp.Select, scope: _Scope) -> _Source:
        output = _Source("", {})
        for item in node.expressions:
            inner = item.unalias()
            if isinstance(item, exp.Star) or isinstance(inner.this, exp.Star):
                table = inner.table.lower() if isinstance(inner, exp.Column) else ""
                for source in scope.sources:
                    if not table or source.alias == table:
                        output.columns = source.columns | output.columns
                        output.open |= source.open
            elif not item.alias_or_name:
                output.open = True  # an expression without a name: SQLite invents one
                output.columns[f"\0{len(output.columns)}"] = None
            else:
                base = self._lookup(inner, scope)[1] if isinstance(inner, exp.Column) else None
                output.columns.setdefault(item.alias_or_name.lower(), base)
        return output


def _renamed(name: str, output: _Source, alias: exp.Expression | None) -> _Source:
    names = [c.name.lower() for c in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return _Source(name, output.columns, output.open)
    bases = list(output.columns.values())
    if output.open or len(bases) != len(names):
        bases = [None] * len(names)
    return _Source(name, dict(zip(names, bases, strict=True)))


def _expressions(values: list[object]) -> Iterator[exp.Expression]:
    for value in values:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expression):
                yield item


def _column_pairs(node: exp.EQ) -> Iterator[tuple[exp.Column, exp.Column]]:
    left, right = node.left.unnest(), node.right.unnest()
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        sides = list(zip(left.expressions, right.expressions, strict=False))
    else:
        sides = [(left, right)]
    for a, b in sides:
        if isinstance(a, exp.Column) and isinstance(b, exp.Column):
            yield a, b


def _lacks(sources: list[_Source], name: str) -> bool:
    return all(name not in s.columns and not s.open for s in sources)


def _first(sources: list[_Source], name: str) -> Base | None:
    """The leftmost source that surely has the column: None as soon as an open one comes first."""
    for source in sources:
        if name in source.columns:
            return source.columns[name]
        if source.open:
            return None
    return None
