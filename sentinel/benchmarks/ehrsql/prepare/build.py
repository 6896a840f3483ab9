"""From a folder of CSVs to a finished database: all of it, or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.prepare import cohort as cohorts
from sentinel.benchmarks.ehrsql.prepare import dictionaries, stays
from sentinel.benchmarks.ehrsql.prepare.csv_files import Report, batches, find_tables
from sentinel.benchmarks.ehrsql.prepare.events import cohort_rows, event_tables, spool
from sentinel.benchmarks.ehrsql.prepare.rules import Rules

SOURCES = (
    *("patients", "admissions", "icustays", "transfers"),
    *("d_icd_diagnoses", "d_icd_procedures", "d_labitems", "d_items"),
    *("diagnoses_icd", "procedures_icd", "labevents", "prescriptions"),
    *("chartevents", "inputevents_cv", "outputevents", "microbiologyevents"),
)
COSTS = (
    ("diagnoses_icd", "icd9_code", "charttime"),
    ("labevents", "itemid", "charttime"),
    ("procedures_icd", "icd9_code", "charttime"),
    ("prescriptions", "drug", "startdate"),
)
"""What costs something: table, what the price belongs to, when it is charged."""
INDEXED = ("subject_id", "hadm_id", "icustay_id", "itemid", "icd9_code")
VERSION = 1
_MEMORY_MB = 512
_STORE = 20_000


def build(
    folder: Path, out: Path, rules: Rules, report: Report = print, memory_mb: int = _MEMORY_MB
) -> dict[str, Any]:
    """Build `out` from the CSVs in `folder`; returns what is written beside it as `out.json`.

    Memory is bounded whatever the size of the files: rows are spooled to a work database beside
    `out`, of which `memory_mb` are kept in memory. `out` appears when it is complete; a build that
    is interrupted leaves nothing under its name. `out.json` holds the rules, row counts and the
    sha256 of the file.

    Raises DataError for missing files, missing columns, damaged rows, and where `out` exists.
    """
    import duckdb

    out = Path(out)
    if out.exists():
        raise DataError(f"{out} exists", "remove it, or name another --out")
    tables = find_tables(Path(folder), SOURCES)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        partial = work / "made.sqlite"
        with (
            duckdb.connect(str(work / "work.duckdb")) as db,
            closing(sqlite3.connect(partial)) as made,
        ):
            db.execute(f"set memory_limit = '{memory_mb}MB'")
            db.execute(f"set temp_directory = '{str(work).replace(chr(39), chr(39) * 2)}'")
            db.execute("set threads = 2")
            db.execute("set preserve_insertion_order = true")
            counts = _Build(tables, rules, db, made, report).run()
        about = _about(partial, rules, counts, tables)
        described = work / "made.json"
        described.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        described.replace(out.with_name(f"{out.name}.json"))
        with partial.open("rb+") as stream:
            os.fsync(stream.fileno())
        partial.replace(out)
    except duckdb.ConversionException as error:
        why = str(error).splitlines()[0][:200]
        raise DataError(f"{folder}: a value cannot be read: {why}", "get the file again") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return about


class _Build:
    """One build: the order of the steps is the order of the draws."""

    def __init__(
        self,
        tables: dict[str, list[Path]],
        rules: Rules,
        db: Any,
        made: sqlite3.Connection,
        report: Report,
    ) -> None:
        self.tables, self.rules, self.db, self.made, self.report = tables, rules, db, made, report
        self.rng = np.random.default_rng(rules.seed)
        self.clock = cohorts.at(rules.clock)

    def run(self) -> dict[str, Any]:
        """Make and fill all seventeen tables; returns the counts of the steps and rows."""
        # Nothing to recover: the file counts only when it is complete.
        self.made.execute("pragma synchronous = off")
        self.made.execute("pragma journal_mode = off")
        self.made.executescript((files(__package__) / "schema.sql").read_text())
        people = stays.patients(self.read("patients", stays.PATIENTS))
        everyone = stays.admissions(
            self.read("admissions", stays.ADMISSIONS), people, self.rules.oldest
        )
        cohort = cohorts.choose(people, everyone, self.rules, self.rng)
        stays.work_tables(cohort, everyone, self.rules, self.db)
        self.store("patients", stays.patient_rows(cohort, self.clock))
        self.store("admissions", stays.admission_rows(cohort, self.clock))
        self.around_stays(cohort)
        for name, columns in dictionaries.COLUMNS.items():
            rows = dictionaries.rows(name, self.read(name, columns))
            self.store(name, rows)
            dictionaries.remember(name, rows, self.db)
        charted = event_tables(self.rules)
        for event in charted:
            spool(event, self.read(event.name, event.source), self.db)
            self.store(event.name, _numbered(cohort_rows(event, self.db, self.rules)))
            if event.name == "prescriptions":  # the authors draw the prices here
                self.costs()
        self.finish()
        counts = {
            name: self.made.execute(f"select count(*) from {name}").fetchone()[0]
            for (name,) in self.made.execute(
                "select name from sqlite_master where type = 'table' and name not like 'sqlite%'"
            ).fetchall()
        }
        return {**cohort.counts, "rows": counts}

    def around_stays(self, cohort: cohorts.Cohort) -> None:
        """ICU stays and transfers, their units exchanged together."""
        icu = stays.stay_rows(
            self.read("icustays", stays.ICUSTAYS), stays.ICUSTAYS, cohort, self.clock
        )
        transfers = stays.stay_rows(
            self.read("transfers", stays.TRANSFERS), stays.TRANSFERS, cohort, self.clock
        )
        if self.rules.shuffle:
            stays.exchange_units(icu, transfers, self.rng)
        self.store("icustays", icu)
        self.store("transfers", transfers)

    def costs(self) -> None:
        """COST: each diagnosis, test, procedure and drug has one invented price."""
        means = self.rng.poisson(lam=10, size=len(COSTS))
        number = 0
        for (table, item, time), mean in zip(COSTS, means, strict=True):
            known = [
                row[0]
                for row in self.made.execute(f"select distinct {item} from {table} order by 1")
            ]
            price = {k: round(float(self.rng.normal(loc=mean, scale=1.0)), 2) for k in known}
            charged = self.made.execute(
                f"select row_id, subject_id, hadm_id, {time}, {item} from {table} order by row_id"
            )
            rows = (
                [number + i, subject, hadm, table, event, when, price[what]]
                for i, (event, subject, hadm, when, what) in enumerate(charged)
            )
            number += self.store("cost", rows)

    def finish(self) -> None:
        """Indexes on what the queries join by, and statistics for SQLite's planner."""
        for (table,) in self.made.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall():
            names = [c for _, c, *_ in self.made.execute(f"pragma table_info({table})")]
            for column in (c for c in INDEXED if c in names):
                self.made.execute(f"create index ix_{table}_{column} on {table}({column})")
        self.made.execute("create index ix_cost_ev on cost(event_type, event_id)")
        self.made.execute("analyze")
        self.made.commit()
        self.made.execute("vacuum")

    def read(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The named columns of a table's CSV."""
        return batches(self.tables[name], columns, self.report)

    def store(self, name: str, rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows; returns how many. Raises DataError where one breaks the schema."""
        n = 0
        cursor = self.made.cursor()
        batch: list[Sequence[Any]] = []

        def flush() -> None:
            if batch:
                marks = ", ".join("?" * len(batch[0]))
                try:
                    cursor.executemany(f"insert into {name} values ({marks})", batch)
                except sqlite3.IntegrityError as error:
                    raise DataError(f"{name}: {error}", "get the CSV files again") from error
                batch.clear()

        for row in rows:
            batch.append(row)
            n += 1
            if len(batch) >= _STORE:
                flush()
        flush()
        self.made.commit()
        self.report(f"{name}: {n:,} rows stored")
        return n


def _numbered(cursor: Any) -> Iterator[list[Any]]:
    number = 0
    while rows := cursor.fetchmany(_STORE):
        for row in rows:
            yield [number, *row]
            number += 1


def _about(
    database: Path, rules: Rules, counts: dict[str, Any], tables: dict[str, list[Path]]
) -> dict[str, Any]:
    with database.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "version": VERSION,
        "sha256": digest,
        "rules": asdict(rules) | {"vitals": {str(k): v for k, v in rules.vitals.items()}},
        **counts,
        "sources": {n: [[p.name, p.stat().st_size] for p in paths] for n, paths in tables.items()},
    }
