"""Small EHRSQL-shaped question files and a small database for them."""

from __future__ import annotations

import json
import lzma
import sqlite3
from pathlib import Path
from typing import Any


def record(number: int, **changes: Any) -> dict[str, Any]:
    """One answerable record, with the fields of the published files."""
    return {
        "db_id": "mimic_iii",
        "id": f"q{number:04d}",
        "question": f"How many stays has patient {number}?",
        "template": f"how many stays has patient {number}?",
        "query": f"select count(*) from admissions where admissions.subject_id = {number}",
        "value": {"patient_id": number},
        "q_tag": "how many stays has patient {patient_id}?",
        "department": ["nursing"],
        "importance": "medium",
        "para_type": "machine",
        "is_impossible": False,
        "split": "valid",
    } | changes


def impossible(number: int, **changes: Any) -> dict[str, Any]:
    """One unanswerable record: no q_tag, a topic as template, the text null as query."""
    made = record(number, query="null", template="test schedule", is_impossible=True, **changes)
    del made["q_tag"]
    return made


def write_questions(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write `.json` or `.json.xz`."""
    data = json.dumps(records).encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
    return path


def write_database(path: Path) -> Path:
    """Patients 1 to 9 with as many admissions as their number."""
    connection = sqlite3.connect(path)
    connection.execute("create table admissions (subject_id int not null, admittime text)")
    rows = [(n, f"2105-0{n}-01 00:00:00") for n in range(1, 10) for _ in range(n)]
    connection.executemany("insert into admissions values (?, ?)", rows)
    connection.commit()
    connection.close()
    return path
