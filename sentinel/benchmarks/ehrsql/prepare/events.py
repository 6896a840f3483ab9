"""The event tables: filtered, values exchanged between patients, moved in time.

Each table's rows are spooled to a database on disk as they stream by, because the exchange of
values draws from *all* rows of the source, not from the cohort's alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.benchmarks.ehrsql.prepare.rules import UNITS, Rules

ITEMS = ("inputevents_cv", "outputevents", "chartevents")


@dataclass(frozen=True, slots=True)
class Event:
    """How one table is made from its CSV.

    `source` are the CSV's columns. `keep` is an SQL condition on a row of text columns and `take`
    maps output columns to SQL expressions over them; rows that pass form the domain in which the
    `values` are exchanged. `time` names the column that must lie between start and clock, `ends`
    another that becomes null after the clock.
    """

    name: str
    source: tuple[str, ...]
    keep: str
    take: dict[str, str]
    values: tuple[str, ...]
    time: str = "charttime"
    ends: str | None = None
    refine: str | None = None
    """A query over `{domain}` that keeps some of its rows, for rules that need all of them."""
    cohort_only: bool = field(default=False)
    """The domain holds the chosen patients' rows up to the clock only (charts are too many)."""


_WHO = {"subject_id": "cast(subject_id as bigint)", "hadm_id": "cast(hadm_id as bigint)"}
_TIME = "cast({} as timestamp)"
_ICU = {"icustay_id": "cast(cast(icustay_id as double) as bigint)"}
_ITEM = {"itemid": "cast(itemid as bigint)"}


def event_tables(rules: Rules) -> list[Event]:
    """The eight tables that are made alike, in the order of the authors' script."""
    kept = ", ".join(map(str, rules.vitals))
    item = "case cast(itemid as bigint) "
    item += " ".join(f"when {a} then {b}" for a, b in rules.vitals.items()) + " end"
    unit = " ".join(f"when {a} then '{UNITS[b]}'" for a, b in rules.vitals.items() if a != b)
    unit = f"case cast(itemid as bigint) {unit} else valueuom end" if unit else "valueuom"
    labels = "cast(itemid as bigint) in (select itemid from d_items)"
    return [
        Event(
            "diagnoses_icd",
            ("subject_id", "hadm_id", "icd9_code"),
            "icd9_code in (select icd9_code from d_icd_diagnoses)",
            {
                **_WHO,
                "icd9_code": "icd9_code",
                "charttime": "(select admitted from stays s where s.hadm_id"
                " = cast(t.hadm_id as bigint))",
            },
            ("icd9_code",),
        ),
        Event(
            "procedures_icd",
            ("subject_id", "hadm_id", "icd9_code"),
            "icd9_code in (select icd9_code from d_icd_procedures)",
            {
                **_WHO,
                "icd9_code": "icd9_code",
                "charttime": "(select discharged from stays s where s.hadm_id"
                " = cast(t.hadm_id as bigint))",
            },
            ("icd9_code",),
        ),
        Event(
            "labevents",
            ("subject_id", "hadm_id", "itemid", "charttime", "valuenum", "valueuom"),
            "hadm_id is not null and valuenum is not null and valueuom is not null"
            " and cast(itemid as bigint) in (select itemid from d_labitems)",
            {
                **_WHO,
                **_ITEM,
                "charttime": _TIME.format("charttime"),
                "valuenum": "cast(valuenum as double)",
                "valueuom": "valueuom",
            },
            ("itemid", "valuenum", "valueuom"),
        ),
        Event(
            "prescriptions",
            (
                *("subject_id", "hadm_id", "startdate", "enddate", "drug"),
                *("dose_val_rx", "dose_unit_rx", "route"),
            ),
            "startdate is not null and enddate is not null and dose_val_rx is not null"
            " and dose_unit_rx is not null and route is not null and drug is not null"
            " and regexp_full_match(replace(dose_val_rx, ',', ''), '[0-9]+')",
            {
                **_WHO,
                "startdate": _TIME.format("startdate"),
                "enddate": _TIME.format("enddate"),
                "drug": "drug",
                # the authors' table holds these whole numbers as text of a float
                "dose_val_rx": "cast(cast(replace(dose_val_rx, ',', '') as bigint) as varchar)"
                " || '.0'",
                "dose_unit_rx": "dose_unit_rx",
                "route": "route",
            },
            ("drug", "dose_val_rx", "dose_unit_rx", "route"),
            time="startdate",
            ends="enddate",
            # each drug keeps its most frequent unit, the first met where two are as frequent
            refine="select {columns} from {domain} d semi join (select drug, dose_unit_rx from"
            " (select drug, dose_unit_rx, row_number() over (partition by drug order by count(*)"
            " desc, min(rowid)) as place from {domain} group by drug, dose_unit_rx)"
            " where place = 1) u using (drug, dose_unit_rx) order by d.rowid",
        ),
        Event(
            "chartevents",
            ("subject_id", "hadm_id", "icustay_id", "itemid", "charttime", "valuenum", "valueuom"),
            f"cast(itemid as bigint) in ({kept}) and hadm_id is not null"
            " and icustay_id is not null and charttime is not null and valuenum is not null"
            f" and ({unit}) is not null",
            {
                **_WHO,
                **_ICU,
                "itemid": item,
                "charttime": _TIME.format("charttime"),
                "valuenum": "cast(valuenum as double)",
                "valueuom": unit,
            },
            ("itemid", "valuenum", "valueuom"),
            cohort_only=True,
        ),
        Event(
            "inputevents_cv",
            ("subject_id", "hadm_id", "icustay_id", "charttime", "itemid", "amount", "amountuom"),
            "hadm_id is not null and icustay_id is not null and amount is not null"
            f" and amountuom = 'ml' and {labels}",
            {
                **_WHO,
                **_ICU,
                "charttime": _TIME.format("charttime"),
                **_ITEM,
                "amount": "cast(amount as double)",
            },
            ("itemid", "amount"),
        ),
        Event(
            "outputevents",
            ("subject_id", "hadm_id", "icustay_id", "charttime", "itemid", "value", "valueuom"),
            "hadm_id is not null and icustay_id is not null and value is not null"
            f" and valueuom = 'ml' and {labels}",
            {
                **_WHO,
                **_ICU,
                "charttime": _TIME.format("charttime"),
                **_ITEM,
                "value": "cast(value as double)",
            },
            ("itemid", "value"),
        ),
        Event(
            "microbiologyevents",
            ("subject_id", "hadm_id", "chartdate", "charttime", "spec_type_desc", "org_name"),
            "true",
            {
                **_WHO,
                "charttime": _TIME.format("coalesce(charttime, chartdate)"),
                "spec_type_desc": "spec_type_desc",
                "org_name": "org_name",
            },
            ("spec_type_desc", "org_name"),
        ),
    ]


def spool(event: Event, batches: Iterable[pa.Table], db: Any) -> None:
    """Stream a table's domain into `domain` of the work database, in the source's order."""
    columns = ", ".join(f"{sql} as {name}" for name, sql in event.take.items())
    where = event.keep
    if event.cohort_only:
        where += (
            " and exists (select 1 from shifts h where h.subject_id = cast(t.subject_id as bigint)"
            " and h.chosen and cast(t.charttime as timestamp) + to_minutes(h.minutes) <= (select"
            " clock from present))"
        )
    db.execute("drop table if exists domain")
    made = False
    for batch in batches:
        db.register("t", batch)
        select = f"select {columns} from t where {where}"
        db.execute(f"insert into domain {select}" if made else f"create table domain as {select}")
        db.unregister("t")
        made = True
    if not made:
        empty = pa.table({name: pa.array([], pa.string()) for name in event.source})
        db.register("t", empty)
        db.execute(f"create table domain as select {columns} from t where {where}")
        db.unregister("t")
    if event.refine is not None:
        query = event.refine.format(
            domain="domain", columns=", ".join(f"d.{name}" for name in event.take)
        )
        db.execute(f"create table refined as {query}")
        db.execute("drop table domain")
        db.execute("alter table refined rename to domain")


def cohort_rows(event: Event, db: Any, rules: Rules) -> Any:
    """A cursor over the cohort's rows of `domain`: exchanged, moved, in order, ready to store.

    The exchange is one permutation of the whole domain from a generator of its own, seeded like the
    cohort's: row i of the domain takes the values of row p(i).
    """
    (n,) = db.execute("select count(*) from domain").fetchone()
    at = db.execute(
        "select rowid as place from domain semi join stays on domain.hadm_id = stays.hadm_id"
        " and stays.chosen order by place"
    ).fetchnumpy()["place"]
    at = np.asarray(at, dtype=np.int64)
    origin = at
    if rules.shuffle:
        # The draws of the authors' choice(arange(n), n): 16 bytes a row at the most, 24 with it.
        origin = np.random.default_rng(rules.seed).choice(n, n, replace=False)[at]
    db.register("places", pa.table({"place": at, "origin": origin.astype(np.int64)}))
    own = [c for c in event.take if c not in event.values and c not in (event.time, event.ends)]
    moved = [c for c in event.take if c in (event.time, event.ends)]
    columns = [
        *(f"d.{c} as {c}" for c in own),
        *(f"v.{c} as {c}" for c in event.values),
        *(f"d.{c} + to_minutes(h.minutes) as {c}" for c in moved),
    ]
    output = ", ".join(_output(c, moved, event.ends) for c in event.take)
    return db.execute(
        f"select {output} from (select {', '.join(columns)}, p.place as place from places p"
        " join domain d on d.rowid = p.place join domain v on v.rowid = p.origin"
        f" join shifts h on h.subject_id = d.subject_id), present where {event.time} <= clock"
        f" and {event.time} >= start order by place"
    )


def _output(column: str, moved: list[str], ends: str | None) -> str:
    if column not in moved:
        return column
    text = f"strftime({column}, '%Y-%m-%d %H:%M:%S')"
    return f"case when {column} <= clock then {text} end" if column == ends else text
