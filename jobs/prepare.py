"""`sentinel prepare ehrsql --csv DIR --out DB`: a benchmark's database from its source files."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

SECONDS = 2.0
"""At most one line of progress in so many seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The data set, its CSV folder, the database, and which of the rules to change."""
    parser.add_argument("dataset", choices=("ehrsql",))
    parser.add_argument("--csv", type=Path, required=True, metavar="DIR", help="MIMIC-III's CSVs")
    parser.add_argument("--out", type=Path, required=True, metavar="DB", help="SQLite to be made")
    parser.add_argument(
        "--relaxed", action="store_true", help="for the open demo: no filters, no exchanged values"
    )
    parser.add_argument("--patients", type=int, help="size of the cohort (1000)")
    parser.add_argument("--seed", type=int, help="of every draw (0, as published)")
    parser.add_argument("--memory-mb", type=int, default=512, help="of the work database (512)")


def main(args: argparse.Namespace) -> int:
    """Build the database and print where it is, with its checksum."""
    from sentinel.benchmarks.ehrsql.prepare import PUBLISHED, RELAXED, build

    changes = {"patients": args.patients, "seed": args.seed}
    rules = RELAXED if args.relaxed else PUBLISHED
    rules = replace(rules, **{k: v for k, v in changes.items() if v is not None})
    progress = _Progress()
    about = build(args.csv, args.out, rules, progress.say, args.memory_mb)
    progress.end()
    rows = about["rows"]
    print(
        f"{len(rows)} tables, {sum(rows.values()):,} rows, {about['patients']} patients "
        f"({about['current_patients']} in hospital at {rules.clock}), rules: {rules.name}"
    )
    print(f"{args.out}\nsha256 {about['sha256']} ({args.out}.json)")
    return 0


class _Progress:
    """One line that changes on a terminal; elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self._terminal, self._last = sys.stderr.isatty(), 0.0

    def say(self, text: str) -> None:
        """Show where the build is."""
        now = time.monotonic()
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text.endswith("stored") or now - self._last >= SECONDS:
            self._last = now
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._terminal:
            print(file=sys.stderr)
