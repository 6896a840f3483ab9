"""Groups: templates whose gold SQL is the same but for literals, spacing, case and aliases.

The group is the unit that never leaks between pools or folds. `top 3 drugs` and `top drug` differ
in a literal only, so they are one group; an unanswerable topic is a group of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sentinel.benchmarks.clinic.templates.base import Template, Topic

_SLOT = re.compile(r"\{\w+\}")


def normalise(sql: str) -> str:
    """SQL without literals, with uniform spacing and case, aliases renamed in order.

    Slots in braces count as literals. Raises ValueError on text that is no SQL statement.
    """
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(_SLOT.sub("1", sql).lower(), read="sqlite")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"not a SQL statement: {sql[:80]!r}") from error
    names: dict[str, str] = {}
    for node in tree.find_all(exp.TableAlias, exp.Alias, bfs=False):
        name = node.alias if isinstance(node, exp.Alias) else node.name
        names.setdefault(name, f"a{len(names)}")
    tables = {table.name for table in tree.find_all(exp.Table)}

    def rewrite(node: exp.Expression) -> exp.Expression:
        signed = node.this if isinstance(node, exp.Neg) else node
        if isinstance(signed, exp.Literal):
            return exp.Placeholder()
        if isinstance(node, exp.Identifier) and node.name in names and node.name not in tables:
            return exp.to_identifier(names[node.name])
        return node

    return tree.transform(rewrite).sql(dialect="sqlite", normalize=True)


def group_ids(templates: Iterable[Template], topics: Iterable[Topic] = ()) -> Mapping[str, str]:
    """Template or topic id → group id, the first id (in order) of its near-duplicates."""
    first: dict[str, str] = {}
    groups = {t.id: first.setdefault(normalise(t.sql), t.id) for t in templates}
    return groups | {topic.id: topic.id for topic in topics}
