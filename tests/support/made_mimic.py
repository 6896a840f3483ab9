"""A tiny MIMIC-III of one's own: the sixteen CSVs, with whatever rows a test names."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HEADERS: Mapping[str, str] = {
    "patients": "row_id,subject_id,gender,dob,dod",
    "admissions": "row_id,subject_id,hadm_id,admittime,dischtime,admission_type,admission_location,"
    "discharge_location,insurance,language,marital_status,ethnicity",
    "icustays": "row_id,subject_id,hadm_id,icustay_id,first_careunit,last_careunit,first_wardid,"
    "last_wardid,intime,outtime",
    "transfers": "row_id,subject_id,hadm_id,icustay_id,eventtype,curr_careunit,curr_wardid,intime,"
    "outtime",
    "d_icd_diagnoses": "row_id,icd9_code,short_title,long_title",
    "d_icd_procedures": "row_id,icd9_code,short_title,long_title",
    "d_labitems": "row_id,itemid,label",
    "d_items": "row_id,itemid,label,linksto",
    "diagnoses_icd": "row_id,subject_id,hadm_id,icd9_code",
    "procedures_icd": "row_id,subject_id,hadm_id,icd9_code",
    "labevents": "row_id,subject_id,hadm_id,itemid,charttime,valuenum,valueuom",
    "prescriptions": "row_id,subject_id,hadm_id,startdate,enddate,drug,dose_val_rx,dose_unit_rx,"
    "route",
    "chartevents": "row_id,subject_id,hadm_id,icustay_id,itemid,charttime,valuenum,valueuom",
    "inputevents_cv": "row_id,subject_id,hadm_id,icustay_id,charttime,itemid,amount,amountuom",
    "outputevents": "row_id,subject_id,hadm_id,icustay_id,charttime,itemid,value,valueuom",
    "microbiologyevents": "row_id,subject_id,hadm_id,chartdate,charttime,spec_type_desc,org_name",
}
DICTIONARIES: Mapping[str, Sequence[Sequence[Any]]] = {
    "d_icd_diagnoses": [("0123", "Short A", "Long A"), ("V10", "Short B", "Long B")],
    "d_icd_procedures": [("0040", "Cut", "A cut"), ("040", "Stitch", "A stitch")],
    "d_labitems": [(50800, "Glucose"), (50801, "Sodium")],
    "d_items": [
        (211, "Heart Rate", "chartevents"),
        (51, "Arterial BP [Systolic]", "chartevents"),
        (30, "Water", "inputevents_cv"),
        (40, "Urine", "outputevents"),
        (99, "Elsewhere", "procedureevents_mv"),
    ],
}


def admission(subject: int, hadm: int, start: str, end: str) -> tuple[Any, ...]:
    """A row of ADMISSIONS without its row_id."""
    told = ("EMERGENCY", "Clinic", " HOME ", "Private", "ENGL", "SINGLE", "WHITE")
    return (subject, hadm, start, end, *told)


def write_mimic(
    folder: Path,
    rows: Mapping[str, Sequence[Sequence[Any]]],
    suffix: Mapping[str, str] | None = None,
) -> Path:
    """Write every table (row ids are added); `suffix` packs some: `.gz` or `.xz`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, header in HEADERS.items():
        stream = io.StringIO()
        writer = csv.writer(stream, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
        writer.writerow(header.upper().split(","))
        table = rows.get(name, DICTIONARIES.get(name, ()))
        writer.writerows([i, *("" if v is None else v for v in row)] for i, row in enumerate(table))
        data = stream.getvalue().encode()
        end = (suffix or {}).get(name, "")
        pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[end]
        (folder / f"{name.upper()}.csv{end}").write_bytes(pack(data))
    return folder
