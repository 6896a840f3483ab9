"""`sentinel sql DB QUERY…`: queries through the sandbox, typed JSON out, one line each."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sentinel.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """DB, queries, and the clock where the database does not say its own."""
    parser.add_argument("database", metavar="DB", type=Path, help="an SQLite file")
    parser.add_argument("queries", metavar="QUERY", nargs="+", help="one SQL statement each")
    parser.add_argument(
        "--clock",
        metavar="'YYYY-MM-DD HH:MM:SS'",
        help="what `now` means (default: `clock` in DB.json beside it, else the time of the call)",
    )


def main(args: argparse.Namespace) -> int:
    """Print one JSON line per query; 3 when one of them gave an error."""
    from sentinel.sql.sandbox import SandboxPool

    database = args.database.expanduser().absolute()
    clock = args.clock or database_clock(database)
    failed = False
    with SandboxPool(database, clock) as pool:
        for query in args.queries:
            result = pool.query(query)
            print(result.to_json(), flush=True)
            failed |= result.error is not None
    return 3 if failed else 0


def database_clock(database: Path) -> str:
    """The clock that a database's side file names; the present time without one.

    The side file is `DB.json` (`mimic.sqlite` → `mimic.sqlite.json`) with a key `clock`, at its top
    or inside one of its objects. Raises UserError when the file is there but damaged.
    """
    side = database.with_name(database.name + ".json")
    try:
        value: Any = json.loads(side.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {side}: {error}", "mend it, or pass --clock") from error
    places = [value, *(value.values() if isinstance(value, dict) else ())]
    for place in places:
        if isinstance(place, dict) and isinstance(place.get("clock"), str):
            return str(place["clock"])
    raise UserError(f"{side} names no clock", "add a key `clock`, or pass --clock")
