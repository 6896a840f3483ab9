"""The 17 tables of the EHRSQL MIMIC-III schema, with primary keys, foreign keys and indices.

Declared keys are those of the data set. `cost.event_id` points into one of four tables, chosen by
`event_type`: the four declarations tell a reader which joins are sound; SQLite never enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass

CLOCK = "2105-12-31 23:59:00"
"""What `current_time` means in this hospital."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: `columns` are (name, type) in order, `foreign` are (column, table, column)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    foreign: tuple[tuple[str, str, str], ...] = ()
    unique: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    """`"a:int b:text?"` as (name, SQL type) pairs; a question mark allows NULL."""
    types = {"int": "integer", "real": "real", "text": "text", "time": "timestamp"}
    pairs = []
    for word in text.split():
        name, kind = word.split(":")
        pairs.append((name, types[kind.rstrip("?")] + ("" if kind.endswith("?") else " not null")))
    return tuple(pairs)


_VISIT = ("hadm_id", "admissions", "hadm_id")
_STAY = ("icustay_id", "icustays", "icustay_id")
_ITEM = ("itemid", "d_items", "itemid")
_EVENT = ("subject_id", "hadm_id", "itemid")

TABLES: tuple[TableSpec, ...] = (
    TableSpec(
        "patients",
        _columns("row_id:int subject_id:int gender:text dob:time dod:time?"),
        unique=("subject_id",),
    ),
    TableSpec(
        "admissions",
        _columns(
            "row_id:int subject_id:int hadm_id:int admittime:time dischtime:time? "
            "admission_type:text admission_location:text discharge_location:text? insurance:text "
            "language:text? marital_status:text? ethnicity:text age:int"
        ),
        (("subject_id", "patients", "subject_id"),),
        ("hadm_id",),
        ("subject_id",),
    ),
    TableSpec(
        "d_icd_diagnoses",
        _columns("row_id:int icd9_code:text short_title:text long_title:text"),
        unique=("icd9_code",),
    ),
    TableSpec(
        "d_icd_procedures",
        _columns("row_id:int icd9_code:text short_title:text long_title:text"),
        unique=("icd9_code",),
    ),
    TableSpec("d_labitems", _columns("row_id:int itemid:int label:text"), unique=("itemid",)),
    TableSpec(
        "d_items", _columns("row_id:int itemid:int label:text linksto:text"), unique=("itemid",)
    ),
    TableSpec(
        "diagnoses_icd",
        _columns("row_id:int subject_id:int hadm_id:int icd9_code:text charttime:time"),
        (_VISIT, ("icd9_code", "d_icd_diagnoses", "icd9_code")),
        indices=("subject_id", "hadm_id", "icd9_code"),
    ),
    TableSpec(
        "procedures_icd",
        _columns("row_id:int subject_id:int hadm_id:int icd9_code:text charttime:time"),
        (_VISIT, ("icd9_code", "d_icd_procedures", "icd9_code")),
        indices=("subject_id", "hadm_id", "icd9_code"),
    ),
    TableSpec(
        "labevents",
        _columns(
            "row_id:int subject_id:int hadm_id:int itemid:int charttime:time valuenum:real? "
            "valueuom:text?"
        ),
        (_VISIT, ("itemid", "d_labitems", "itemid")),
        indices=_EVENT,
    ),
    TableSpec(
        "prescriptions",
        _columns(
            "row_id:int subject_id:int hadm_id:int startdate:time enddate:time? drug:text "
            "dose_val_rx:text dose_unit_rx:text route:text"
        ),
        (_VISIT,),
        indices=("subject_id", "hadm_id", "drug"),
    ),
    TableSpec(
        "cost",
        _columns(
            "row_id:int subject_id:int hadm_id:int event_type:text event_id:int chargetime:time "
            "cost:real"
        ),
        (
            _VISIT,
            ("event_id", "diagnoses_icd", "row_id"),
            ("event_id", "procedures_icd", "row_id"),
            ("event_id", "labevents", "row_id"),
            ("event_id", "prescriptions", "row_id"),
        ),
        indices=("subject_id", "hadm_id", "event_id"),
    ),
    TableSpec(
        "chartevents",
        _columns(
            "row_id:int subject_id:int hadm_id:int icustay_id:int itemid:int charttime:time "
            "valuenum:real? valueuom:text?"
        ),
        (_VISIT, _STAY, _ITEM),
        indices=_EVENT,
    ),
    TableSpec(
        "inputevents_cv",
        _columns(
            "row_id:int subject_id:int hadm_id:int icustay_id:int charttime:time itemid:int "
            "amount:real?"
        ),
        (_VISIT, _STAY, _ITEM),
        indices=_EVENT,
    ),
    TableSpec(
        "outputevents",
        _columns(
            "row_id:int subject_id:int hadm_id:int icustay_id:int charttime:time itemid:int "
            "value:real?"
        ),
        (_VISIT, _STAY, _ITEM),
        indices=_EVENT,
    ),
    TableSpec(
        "microbiologyevents",
        _columns(
            "row_id:int subject_id:int hadm_id:int charttime:time spec_type_desc:text "
            "org_name:text?"
        ),
        (_VISIT,),
        indices=("subject_id", "hadm_id"),
    ),
    TableSpec(
        "icustays",
        _columns(
            "row_id:int subject_id:int hadm_id:int icustay_id:int first_careunit:text "
            "last_careunit:text first_wardid:int last_wardid:int intime:time outtime:time?"
        ),
        (_VISIT,),
        ("icustay_id",),
        ("subject_id", "hadm_id"),
    ),
    TableSpec(
        "transfers",
        _columns(
            "row_id:int subject_id:int hadm_id:int icustay_id:int? eventtype:text careunit:text? "
            "wardid:int intime:time outtime:time?"
        ),
        (_VISIT,),
        indices=("subject_id", "hadm_id"),
    ),
)
NAMES: tuple[str, ...] = tuple(table.name for table in TABLES)


def create_statements() -> list[str]:
    """CREATE TABLE for every table; a foreign key's parent column is declared unique."""
    statements = []
    for table in TABLES:
        lines = []
        for name, kind in table.columns:
            tail = " primary key" if name == "row_id" else " unique" if name in table.unique else ""
            lines.append(f"{name} {kind}{tail}")
        lines += [f"foreign key ({c}) references {t} ({k})" for c, t, k in table.foreign]
        statements.append(f"create table {table.name} (\n  " + ",\n  ".join(lines) + "\n)")
    return statements


def index_statements() -> list[str]:
    """CREATE INDEX for the columns that questions select by."""
    return [
        f"create index {table.name}_{column} on {table.name} ({column})"
        for table in TABLES
        for column in table.indices
    ]


def serialized() -> str:
    """The schema as a model reads it: one table a line, then the declared foreign keys."""
    lines = [f"{t.name}({', '.join(name for name, _ in t.columns)})" for t in TABLES]
    lines.append("foreign keys:")
    lines += [f"{t.name}.{c} = {p}.{k}" for t in TABLES for c, p, k in t.foreign]
    return "\n".join(lines)
