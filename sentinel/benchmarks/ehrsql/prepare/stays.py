"""The tables around a stay: patients, admissions, ICU stays, transfers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.prepare.cohort import Admission, Cohort, Patient, at
from sentinel.benchmarks.ehrsql.prepare.rules import Rules

PATIENTS = ("subject_id", "gender", "dob", "dod")
ADMISSIONS = (
    *("subject_id", "hadm_id", "admittime", "dischtime", "admission_type", "admission_location"),
    *("discharge_location", "insurance", "language", "marital_status", "ethnicity"),
)
ICUSTAYS = (
    *("subject_id", "hadm_id", "icustay_id", "first_careunit", "last_careunit"),
    *("first_wardid", "last_wardid", "intime", "outtime"),
)
TRANSFERS = (
    *("subject_id", "hadm_id", "icustay_id", "eventtype", "curr_careunit", "curr_wardid"),
    *("intime", "outtime"),
)
_LOCATION = 2
"""Place of discharge_location among an admission's descriptive columns."""
Row = list[Any]


def patients(batches: Iterator[pa.Table]) -> list[Patient]:
    """Rows of PATIENTS.csv. Raises DataError for one without a date of birth."""
    return [
        Patient(
            number(r["subject_id"]), r["gender"], at(r["dob"]), at(r["dod"]) if r["dod"] else None
        )
        for r in _rows(batches, "patients", ("subject_id", "dob"))
    ]


def admissions(
    batches: Iterator[pa.Table], people: Sequence[Patient], oldest: int | None = None
) -> list[Admission]:
    """Rows of ADMISSIONS.csv with the age in whole years at admission, `oldest` at most."""
    born = {p.subject: p.dob for p in people}
    found = []
    for r in _rows(batches, "admissions", ("subject_id", "hadm_id", "admittime", "dischtime")):
        subject = number(r["subject_id"])
        if subject not in born:
            raise DataError(
                f"admissions.csv speaks of patient {subject}, whom patients.csv lacks",
                "take all CSV files from one release",
            )
        admitted = at(r["admittime"])
        age = int((admitted - born[subject]).days / 365.25)
        age = age if oldest is None else min(age, oldest)
        rest = tuple(r[c] for c in ADMISSIONS[4:])
        found.append(
            Admission(subject, number(r["hadm_id"]), admitted, at(r["dischtime"]), age, rest)
        )
    return found


def _rows(batches: Iterator[pa.Table], table: str, needed: Sequence[str]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            lacks = [c for c in needed if row[c] is None]
            if lacks:
                raise DataError(
                    f"{table}.csv has a row without {', '.join(lacks)}", "get the file again"
                )
            yield row


def number(text: str) -> int:
    """A whole number of the CSVs, which some tools write as 12.0. Raises DataError."""
    try:
        return int(float(text))
    except ValueError as error:
        raise DataError(f"{text!r} is no number", "get the CSV files again") from error


def patient_rows(cohort: Cohort, clock: datetime) -> list[Row]:
    """PATIENTS: a death after the clock has not happened yet."""
    return [
        [i, p.subject, p.gender, moved(p.dob, cohort.shift[p.subject]),
         moved(p.dod, cohort.shift[p.subject], clock)]
        for i, p in enumerate(cohort.patients)
    ]  # fmt: skip


def admission_rows(cohort: Cohort, clock: datetime) -> list[Row]:
    """ADMISSIONS: who is in hospital at the clock has neither a discharge nor its place."""
    rows = []
    for i, a in enumerate(cohort.admissions):
        shift, rest = cohort.shift[a.subject], list(a.rest)
        discharged = moved(a.discharged, shift, clock)
        if discharged is None:
            rest[_LOCATION] = None
        admitted = moved(a.admitted, shift)
        rows.append([i, a.subject, a.hadm, admitted, discharged, *rest, a.age])
    return rows


def stay_rows(
    batches: Iterator[pa.Table], columns: Sequence[str], cohort: Cohort, clock: datetime
) -> list[Row]:
    """ICUSTAYS or TRANSFERS of the cohort, moved; what begins after the clock is left out."""
    chosen = {a.hadm for a in cohort.admissions}
    numbers = {c for c in columns if c.endswith("id")}
    rows: list[Row] = []
    for batch in batches:
        for r in batch.to_pylist():
            if r["hadm_id"] is None or number(r["hadm_id"]) not in chosen or r["intime"] is None:
                continue
            shift = cohort.shift[number(r["subject_id"])]
            begins = moved(at(r["intime"]), shift, clock)
            if begins is None:
                continue
            ends = moved(at(r["outtime"]), shift, clock) if r["outtime"] else None
            values = [
                number(r[c]) if c in numbers and r[c] is not None else r[c] for c in columns[:-2]
            ]
            rows.append([len(rows), *values, begins, ends])
    return rows


def exchange_units(icustays: list[Row], transfers: list[Row], rng: np.random.Generator) -> None:
    """Give each ICU stay the care unit and ward of another, and its transfers the same, in place.

    One stay after the other, as the authors' script does it: a stay may receive what an earlier one
    has already received.
    """
    order = rng.choice(len(icustays), len(icustays), replace=False).tolist()
    renamed: dict[int, list[dict[Any, Any]]] = {}
    for stay, other in zip(icustays, order, strict=True):
        new = icustays[other][4:8]  # first and last care unit, first and last ward
        renamed[stay[3]] = [
            {stay[4]: new[0]} | {stay[5]: new[1]},
            {stay[6]: new[2]} | {stay[7]: new[3]},
        ]
        stay[4:8] = new
    for row in transfers:
        if row[3] in renamed:
            units, wards = renamed[row[3]]
            row[5], row[6] = units.get(row[5], row[5]), wards.get(row[6], row[6])


def moved(time: datetime | None, minutes: int, clock: datetime | None = None) -> str | None:
    """A time after the shift, as text; None after the clock."""
    if time is None:
        return None
    new = time + timedelta(minutes=minutes)
    if clock is not None and new > clock:
        return None
    return f"{new.year:04d}-{new:%m-%d %H:%M:%S}"


def work_tables(cohort: Cohort, everyone: Sequence[Admission], rules: Rules, db: Any) -> None:
    """What the event tables ask of the cohort: `stays`, `shifts` and `present`."""
    chosen = {a.hadm for a in cohort.admissions}
    subjects = {p.subject for p in cohort.patients}
    kept = [a for a in everyone if a.subject in cohort.shift]
    stays = pa.table(
        {
            "hadm_id": pa.array([a.hadm for a in kept], pa.int64()),
            "admitted": pa.array([a.admitted for a in kept], pa.timestamp("us")),
            "discharged": pa.array([a.discharged for a in kept], pa.timestamp("us")),
            "chosen": pa.array([a.hadm in chosen for a in kept], pa.bool_()),
        }
    )
    shifts = pa.table(
        {
            "subject_id": pa.array(list(cohort.shift), pa.int64()),
            "minutes": pa.array(list(cohort.shift.values()), pa.int64()),
            "chosen": pa.array([s in subjects for s in cohort.shift], pa.bool_()),
        }
    )
    present = pa.table(
        {
            "clock": pa.array([at(rules.clock)], pa.timestamp("us")),
            "start": pa.array([datetime(rules.start_year, 1, 1)], pa.timestamp("us")),
        }
    )
    for name, table in (("stays", stays), ("shifts", shifts), ("present", present)):
        db.register("made", table)
        db.execute(f"create table {name} as select * from made")
        db.unregister("made")
