"""A seeded synthetic hospital in the EHRSQL MIMIC-III schema: same seed, same bytes.

Every number comes from the raw uniform doubles of PCG64, so the rows do not depend on a library's
choice of sampling algorithm. Patients, visits and stays are consistent: events lie inside their
visit, ICU events inside their stay, nothing after death or after the hospital's clock.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.benchmarks.clinic import schema
from sentinel.benchmarks.clinic import vocabulary as v
from sentinel.errors import UserError

VERSION = 1
"""Raise when the rows of a seed change: it is part of the file name and of the fingerprint."""
MIN_PATIENTS = 300
MAX_PATIENTS = 5_000
PAGE_SIZE = 4096
_CLOCK = datetime.fromisoformat(schema.CLOCK)
_START = datetime(2101, 1, 1)
Rows = dict[str, list[tuple[Any, ...]]]


class _Draw:
    """Uniform doubles in blocks, and the few shapes the hospital needs."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._block: list[float] = []

    def u(self) -> float:
        if not self._block:
            self._block = self._rng.random(8192).tolist()
            self._block.reverse()
        return self._block.pop()

    def below(self, n: int) -> int:
        return int(self.u() * n)

    def between(self, low: int, high: int) -> int:
        """An integer of low … high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[tuple[str, float]]) -> str:
        x = self.u()
        for item, weight in items:
            x -= weight
            if x < 0:
                return item
        return items[-1][0]

    def sample(self, items: Sequence[Any], k: int) -> list[Any]:
        pool = list(items)
        return [pool.pop(self.below(len(pool))) for _ in range(min(k, len(pool)))]

    def bell(self) -> float:
        """About standard normal: six uniforms, scaled (exact on every platform)."""
        return (self.u() + self.u() + self.u() + self.u() + self.u() + self.u() - 3.0) * 1.4142

    def moment(self, low: datetime, high: datetime) -> datetime:
        """A whole minute of [low, high]."""
        minutes = int((high - low).total_seconds() // 60)
        return low + timedelta(minutes=self.below(max(1, minutes)))


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


class _Hospital:
    """Collects rows table by table while the patients' lives are drawn."""

    def __init__(self, seed: int, patients: int) -> None:
        self.draw = _Draw(seed)
        self.rows: Rows = {name: [] for name in schema.NAMES}
        self.costs: list[tuple[datetime, int, int, str, int, float]] = []
        self.visit_id, self.stay_id = 100_000, 200_000
        self._dictionaries()
        ids = sorted(self.draw.sample(range(100, 100 + 25 * patients), patients))
        inside = set(self.draw.sample(ids, patients // 10))
        for subject in ids:
            self._patient(subject, subject in inside)
        for moment, subject, visit, kind, event, price in self.costs:
            self.add("cost", subject, visit, kind, event, _time(moment), price)

    def add(self, table: str, *values: Any) -> int:
        """Append a row; its row_id, counted per table from 1, is the result."""
        rows = self.rows[table]
        rows.append((len(rows) + 1, *values))
        return len(rows)

    def _dictionaries(self) -> None:
        for code, short, long in v.DIAGNOSES:
            self.add("d_icd_diagnoses", code, short, long)
        for code, short, long in v.PROCEDURES:
            self.add("d_icd_procedures", code, short, long)
        for lab in v.LABS:
            self.add("d_labitems", lab[0], lab[1])
        for vital in v.VITALS:
            self.add("d_items", vital[0], vital[1], "chartevents")
        for item, label, _ in v.INPUTS:
            self.add("d_items", item, label, "inputevents_cv")
        for item, label, _ in v.OUTPUTS:
            self.add("d_items", item, label, "outputevents")

    def _patient(self, subject: int, inside: bool) -> None:
        d = self.draw
        dob = datetime(d.between(2013, 2082), d.between(1, 12), d.between(1, 28))
        gender = "f" if d.u() < 0.48 else "m"
        insurance, language = d.weighted(v.INSURANCES), d.weighted(v.LANGUAGES)
        ethnicity = d.weighted(v.ETHNICITIES)
        chronic = d.sample(v.DIAGNOSES, d.between(1, 2))
        count = 1 + sum(d.u() < 0.55 for _ in range(4))
        last = _CLOCK - timedelta(days=2)
        starts = sorted(d.moment(_START, last) for _ in range(count))
        if inside:
            starts[-1] = d.moment(_CLOCK - timedelta(days=20), last)
        dod: datetime | None = None
        free = _START
        for number, start in enumerate(starts):
            start = max(start, free)
            final = number == count - 1
            if start > (last if final or not inside else _CLOCK - timedelta(days=100)):
                continue
            length = timedelta(minutes=d.between(1, 14) * 1440 + d.below(1440))
            end: datetime | None = start + length
            if inside and final:
                end = None
            elif end is not None and end > _CLOCK:
                continue
            dies = end is not None and not inside and d.u() < 0.06
            place = None if end is None else "died" if dies else d.weighted(v.DISCHARGE_LOCATIONS)
            if dies:
                dod = end
            marital = d.weighted(v.MARITAL)
            if d.u() < 0.1:
                insurance = d.weighted(v.INSURANCES)
            age = start.year - dob.year - ((start.month, start.day) < (dob.month, dob.day))
            self.visit_id += d.between(1, 9)
            self.add(
                "admissions", subject, self.visit_id, _time(start), _time(end),
                d.weighted(v.ADMISSION_TYPES), d.weighted(v.ADMISSION_LOCATIONS), place, insurance,
                language, marital, ethnicity, age,
            )  # fmt: skip
            self._visit(subject, start, end or _CLOCK, end is None, chronic)
            if dies:
                break
            free = start + length + timedelta(days=d.between(3, 60))
        if dod is None and not inside and d.u() < 0.2:
            dod = d.moment(min(free, _CLOCK), _CLOCK)
        self.add("patients", subject, gender, _time(dob), _time(dod))

    def _charge(self, moment: datetime, subject: int, kind: str, event: int, price: float) -> None:
        factor = 0.75 + 0.5 * self.draw.u()
        self.costs.append((moment, subject, self.visit_id, kind, event, round(price * factor, 2)))

    def _visit(
        self, subject: int, start: datetime, end: datetime, current: bool, chronic: Sequence[Any]
    ) -> None:
        d, visit = self.draw, self.visit_id
        illnesses = list(chronic)
        for extra in d.sample(v.DIAGNOSES, d.between(1, 3)):
            if extra not in illnesses:
                illnesses.append(extra)
        drugs, procedures = set(d.sample(v.COMMON_DRUGS, d.between(2, 4))), []
        for code, title, _ in illnesses:
            usual_drugs, usual_procedures = v.USUAL[title]
            at = d.moment(start, min(end, start + timedelta(days=1)))
            event = self.add("diagnoses_icd", subject, visit, code, _time(at))
            self._charge(at, subject, "diagnoses_icd", event, 40.0)
            drugs.update(x for x in usual_drugs.split(",") if d.u() < 0.75)
            procedures += [x for x in usual_procedures.split(",") if x and d.u() < 0.55]
        if d.u() < 0.15:
            procedures.append(d.pick(v.PROCEDURES)[1])
        codes = {short: code for code, short, _ in v.PROCEDURES}
        for name in procedures:
            at = d.moment(start, end)
            event = self.add("procedures_icd", subject, visit, codes[name], _time(at))
            self._charge(at, subject, "procedures_icd", event, 260.0)
        self._drugs(subject, start, end, current, drugs)
        self._labs(subject, start, end)
        for _ in range(d.below(4)):
            organism = d.pick(v.ORGANISMS) if d.u() < 0.6 else None
            taken = _time(d.moment(start, end))
            self.add("microbiologyevents", subject, visit, taken, d.pick(v.SPECIMENS), organism)
        self._wards(subject, start, end, current)

    def _drugs(
        self, subject: int, start: datetime, end: datetime, current: bool, drugs: set[str]
    ) -> None:
        d = self.draw
        for drug, dose, unit, route, price in v.DRUGS:
            if drug not in drugs:
                continue
            for _ in range(1 + (d.u() < 0.25)):
                begin = d.moment(start, end)
                stop: datetime | None = begin + timedelta(minutes=60 * d.between(12, 120))
                if stop is not None and stop > end:
                    stop = None if current else end
                amount = dose if d.u() < 0.8 else str(int(2 * float(dose)))
                event = self.add(
                    "prescriptions", subject, self.visit_id, _time(begin), _time(stop), drug,
                    amount, unit, route,
                )  # fmt: skip
                self._charge(begin, subject, "prescriptions", event, price)

    def _labs(self, subject: int, start: datetime, end: datetime) -> None:
        d = self.draw
        for item, _, unit, typical, spread, decimals in d.sample(v.LABS, d.between(5, 10)):
            level = typical + 0.6 * spread * d.bell()
            for at in sorted(d.moment(start, end) for _ in range(d.between(1, 4))):
                value = round(max(level + 0.6 * spread * d.bell(), typical * 0.25), decimals)
                event = self.add("labevents", subject, self.visit_id, item, _time(at), value, unit)
                self._charge(at, subject, "labevents", event, 18.0)

    def _wards(self, subject: int, start: datetime, end: datetime, current: bool) -> None:
        d, visit = self.draw, self.visit_id
        floor = d.pick(v.FLOOR_WARDS)
        hours = int((end - start).total_seconds() // 3600)
        stays = (d.u() < 0.5) + (d.u() < 0.08)
        if hours < 16 or not stays:
            self.add(
                "transfers", subject, visit, None, "admit", None, floor, _time(start),
                None if current else _time(end),
            )  # fmt: skip
        else:
            cuts = sorted(d.moment(start, end) for _ in range(2 * stays))
            moments = [start, *cuts, end]
            for i in range(len(moments) - 1):
                into, out = moments[i], moments[i + 1]
                if (out - into) < timedelta(minutes=1):
                    continue
                kind = "admit" if i == 0 else "transfer"
                span = (_time(into), None if current and out == end else _time(out))
                if i % 2 == 0:
                    self.add("transfers", subject, visit, None, kind, None, floor, *span)
                    continue
                unit = d.weighted(v.CARE_UNITS)
                other = unit if d.u() < 0.85 else d.weighted(v.CARE_UNITS)
                first, final = d.pick(v.WARDS[unit]), d.pick(v.WARDS[other])
                self.stay_id += d.between(1, 9)
                ids = (subject, visit, self.stay_id)
                self.add("icustays", *ids, unit, other, first, final, *span)
                self.add("transfers", *ids, kind, unit, first, *span)
                self._monitor(subject, into, out)
        if not current:
            self.add("transfers", subject, visit, None, "discharge", None, floor, _time(end), None)

    def _monitor(self, subject: int, start: datetime, end: datetime) -> None:
        d, ids = self.draw, (subject, self.visit_id, self.stay_id)
        for item, _, unit, typical, spread in v.VITALS:
            level = typical + 0.5 * spread * d.bell()
            for at in sorted(d.moment(start, end) for _ in range(d.between(2, 6))):
                value = level + 0.6 * spread * d.bell()
                value = round(value, 1 if spread < 1 else 0)
                value = min(value, 100.0) if unit == "%" else value
                self.add("chartevents", *ids, item, _time(at), value, unit)
        for items, table in ((v.INPUTS, "inputevents_cv"), (v.OUTPUTS, "outputevents")):
            for item, _, usual in d.sample(items, d.between(1, 4)):
                for at in sorted(d.moment(start, end) for _ in range(d.between(1, 4))):
                    amount = float(round(usual * (0.4 + 1.2 * d.u())))
                    self.add(table, *ids, _time(at), item, amount)


def hospital_rows(seed: int, patients: int) -> Rows:
    """Rows of every table, in insertion order, `row_id` first.

    Raises UserError when `patients` is not within 300 … 5000 or the seed is not a natural number.
    """
    for name, value, low, high in (
        ("hospital_seed", seed, 0, 2**63),
        ("patients", patients, MIN_PATIENTS, MAX_PATIENTS),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise UserError(
                f"clinic: {name} is {value!r}", f"set {name} to an integer from {low} to {high}"
            )
    return _Hospital(seed, patients).rows


def fill(connection: sqlite3.Connection, rows: Rows) -> None:
    """Create, fill and index all tables on an empty database."""
    for statement in schema.create_statements():
        connection.execute(statement)
    for table in schema.TABLES:
        marks = ", ".join("?" * len(table.columns))
        connection.executemany(f"insert into {table.name} values ({marks})", rows[table.name])
    for statement in schema.index_statements():
        connection.execute(statement)
    connection.commit()


def digest(rows: Rows) -> str:
    """Hash of the logical content: every row of every table, in order."""
    h = hashlib.sha256(f"hospital {VERSION}\n".encode())
    for name in schema.NAMES:
        h.update(f"{name}\n".encode())
        for row in rows[name]:
            h.update(repr(row).encode())
    return h.hexdigest()


def build(path: Path, rows: Rows) -> None:
    """Write the database at `path`: temporary name, fsync, rename. An existing file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        connection = sqlite3.connect(temporary)
        try:
            connection.execute(f"pragma page_size = {PAGE_SIZE}")
            connection.execute("pragma journal_mode = off")
            connection.execute("pragma synchronous = off")
            connection.execute("pragma encoding = 'UTF-8'")
            fill(connection, rows)
            connection.execute("vacuum")
        finally:
            connection.close()
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
