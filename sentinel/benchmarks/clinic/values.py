"""Where slot values come from: the database itself, or a short closed list.

A value has two faces, `spoken` (in the question) and `literal` (in the SQL): "female" and `f`,
"in the last 6 months" and `-6 month`. A source yields whole rows of slots, so that a patient and a
drug are drawn together and the gold query finds something.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """One slot's value: its words and its SQL literal (before quoting)."""

    spoken: str
    literal: str


Row = Mapping[str, Value]


def _span(text: str) -> Value:
    number, unit = text.split()
    spoken = f"in the last {unit}" if number == "1" else f"in the last {number} {unit}s"
    return Value(spoken, f"-{number} {unit}")


def _pairs(*pairs: tuple[str, str]) -> tuple[Value, ...]:
    return tuple(Value(*pair) for pair in pairs)


CLOSED: Mapping[str, tuple[Value, ...]] = {
    "window": (
        *(_span(f"{n} month") for n in (2, 3, 6, 9)),
        *(_span(f"{n} year") for n in (1, 2, 3, 4)),
    ),
    "year": tuple(Value(y, y) for y in ("2101", "2102", "2103", "2104", "2105")),
    "nth": _pairs(("second", "1"), ("third", "2"), ("fourth", "3")),
    "k": tuple(Value(x, x) for x in ("2", "3", "4", "5", "6")),
    "times": tuple(Value(x, x) for x in ("2", "3")),
    "years": tuple(Value(str(x), str(x)) for x in range(30, 85, 2)),
    "months": _pairs(
        ("3 months", "+3 month"), ("6 months", "+6 month"), ("12 months", "+12 month"),
        ("18 months", "+18 month"), ("24 months", "+24 month"),
    ),
    "gender": _pairs(("male", "m"), ("female", "f")),
    "kind": _pairs(
        ("prescriptions", "prescriptions"), ("lab tests", "labevents"),
        ("procedures", "procedures_icd"), ("diagnoses", "diagnoses_icd"),
    ),
}  # fmt: skip

_TITLE = "join {d} d on e.icd9_code = d.icd9_code"
_ITEM = "select distinct e.subject_id, d.label from {t} e join {d} d on e.itemid = d.itemid"
_MID = (
    "select subject_id, label, valuenum from (select e.subject_id, d.label, e.valuenum, "
    "count(*) over (partition by e.subject_id, d.label) as n, row_number() over "
    "(partition by e.subject_id, d.label order by e.valuenum, e.row_id) as i "
    "from {t} e join {d} d on e.itemid = d.itemid) where n > 2 and i = n / 2"
)

# source → (slots, SQL of their values)
QUERIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "patient": (("patient",), "select distinct subject_id from admissions"),
    "dead": (("patient",), "select subject_id from patients where dod is not null"),
    "inpatient": (("patient",), "select subject_id from admissions where dischtime is null"),
    "icu_patient": (("patient",), "select distinct subject_id from icustays"),
    "birth": (("birth",), "select distinct strftime('%Y', dob) from patients"),
    "diagnosis": (("diagnosis",), "select short_title from d_icd_diagnoses"),
    "procedure": (("procedure",), "select short_title from d_icd_procedures"),
    "drug": (("drug",), "select distinct drug from prescriptions"),
    "lab": (("lab",), "select label from d_labitems"),
    "route": (("route",), "select distinct route from prescriptions"),
    "specimen": (("specimen",), "select distinct spec_type_desc from microbiologyevents"),
    "organism": (
        ("organism",),
        "select distinct org_name from microbiologyevents where org_name is not null",
    ),
    "unit": (("unit",), "select distinct first_careunit from icustays"),
    "insurance": (("insurance",), "select distinct insurance from admissions"),
    "language": (("language",), "select distinct language from admissions"),
    "ethnicity": (("ethnicity",), "select distinct ethnicity from admissions"),
    "type": (("type",), "select distinct admission_type from admissions"),
    "patient_diagnosis": (
        ("patient", "diagnosis"),
        "select distinct e.subject_id, d.short_title from diagnoses_icd e "
        + _TITLE.format(d="d_icd_diagnoses"),
    ),
    "dead_diagnosis": (
        ("patient", "diagnosis"),
        "select distinct e.subject_id, d.short_title from diagnoses_icd e "
        + _TITLE.format(d="d_icd_diagnoses")
        + " join patients p on e.subject_id = p.subject_id where p.dod is not null",
    ),
    "patient_procedure": (
        ("patient", "procedure"),
        "select distinct e.subject_id, d.short_title from procedures_icd e "
        + _TITLE.format(d="d_icd_procedures"),
    ),
    "patient_drug": (("patient", "drug"), "select distinct subject_id, drug from prescriptions"),
    "patient_lab": (("patient", "lab"), _ITEM.format(t="labevents", d="d_labitems")),
    "patient_vital": (("patient", "item"), _ITEM.format(t="chartevents", d="d_items")),
    "patient_input": (("patient", "item"), _ITEM.format(t="inputevents_cv", d="d_items")),
    "patient_output": (("patient", "item"), _ITEM.format(t="outputevents", d="d_items")),
    "patient_lab_mid": (
        ("patient", "lab", "level"),
        _MID.format(t="labevents", d="d_labitems"),
    ),
    "patient_vital_mid": (
        ("patient", "item", "level"),
        _MID.format(t="chartevents", d="d_items"),
    ),
    "patient_specimen": (
        ("patient", "specimen"),
        "select distinct subject_id, spec_type_desc from microbiologyevents",
    ),
    "patient_organism": (
        ("patient", "organism"),
        "select distinct subject_id, org_name from microbiologyevents where org_name is not null",
    ),
}


def _value(cell: Any) -> Value:
    text = f"{cell:g}" if isinstance(cell, float) else str(cell)
    return Value(text, text)


class Sources:
    """Rows of slot values per source, read once from a database and kept."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: dict[str, Sequence[Row]] = {
            name: [{name: value} for value in values] for name, values in CLOSED.items()
        }

    def rows(self, source: str) -> Sequence[Row]:
        """Every row of a source, sorted by value so that no query plan decides their order."""
        if source not in self._rows:
            slots, sql = QUERIES[source]
            cells = sorted(self._connection.execute(sql).fetchall())
            self._rows[source] = [dict(zip(slots, map(_value, row), strict=True)) for row in cells]
        return self._rows[source]


def fill_text(pattern: str, row: Row) -> str:
    """A paraphrase with its slots spoken."""
    return pattern.format_map({name: value.spoken for name, value in row.items()})


def fill_sql(pattern: str, row: Row) -> str:
    """Gold SQL with its slots as literals; an apostrophe is doubled."""
    literals = {name: value.literal.replace("'", "''") for name, value in row.items()}
    return pattern.format_map(literals)
