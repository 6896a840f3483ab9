"""Tables, columns and declared foreign keys of one SQLite file, read once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import UserError

Base = tuple[str, str]
"""(table, column), both lower case: a stored column."""


@dataclass(frozen=True, eq=False)
class Schema:
    """Tables, columns and declared foreign keys of one database, names in lower case.

    `foreign_keys` holds unordered pairs {(table, column), (table, column)}. `constants` are bare
    names that the sandbox replaces by values before SQLite reads a query (`clock.vital_ranges`).
    """

    tables: Mapping[str, tuple[str, ...]]
    foreign_keys: frozenset[frozenset[Base]] = frozenset()
    constants: frozenset[str] = frozenset()

    @classmethod
    def read(cls, database: Path) -> Schema:
        """The schema of a SQLite file, through a read-only connection of this process.

        Raises UserError when the file is missing or no database.
        """
        uri = f"{Path(database).resolve().as_uri()}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(uri, uri=True)
            try:
                return cls._read(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise UserError(
                f"cannot read the schema of {database}: {error}", "check the path"
            ) from error

    @classmethod
    def _read(cls, connection: sqlite3.Connection) -> Schema:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
            )
        ]
        columns: dict[str, tuple[str, ...]] = {}
        keys: dict[str, list[str]] = {}
        for name in names:
            rows = connection.execute(
                "SELECT name, pk FROM pragma_table_xinfo(?)", (name,)
            ).fetchall()
            columns[name.lower()] = tuple(c.lower() for c, _ in rows)
            keys[name.lower()] = [c.lower() for c, pk in sorted(rows, key=lambda r: r[1]) if pk]
        pairs = set()
        for name in names:
            found = connection.execute(
                'SELECT seq, "table", "from", "to" FROM pragma_foreign_key_list(?)', (name,)
            )
            for seq, parent, child_column, parent_column in found:
                parent = parent.lower()
                if parent_column is None:  # REFERENCES parent: its primary key
                    primary = keys.get(parent, [])
                    if seq >= len(primary):
                        continue
                    parent_column = primary[seq]
                child = (name.lower(), child_column.lower())
                pairs.add(frozenset({child, (parent, parent_column.lower())}))
        return cls(columns, frozenset(pairs))
