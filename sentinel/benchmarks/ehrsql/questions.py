"""Question files of EHRSQL: read, told apart by version, and checked record by record.

The published files carry no version, and 1.5.x rewrote every question text of 1.0.0. A file's
version is therefore read from anchors: ids whose texts are known, by hash, in each version.
"""

from __future__ import annotations

import ast
import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from sentinel.benchmarks.base import DataError

REGROUNDED = "reground"
"""Variant of records whose values were replaced by values of another database (`src_id`)."""
_NEEDED = ("id", "question", "query", "template", "is_impossible")


@dataclass(frozen=True)
class Question:
    """One record. `query` is None for an unanswerable question; `answer` is a known result."""

    id: str
    text: str
    query: str | None
    group: str
    db_id: str
    split: str
    source_id: str
    regrounded: bool
    answer: tuple[tuple[Any, ...], ...] | None
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class QuestionFile:
    """A question file: its records in file order, the version of their texts, and its hash."""

    path: Path
    version: str
    db_id: str
    questions: Sequence[Question]
    sha256: str


def read_questions(path: Path | str, version: str | None = None) -> QuestionFile:
    """Read `.json` or `.json.xz`. `version` declares what the anchors cannot tell.

    Raises DataError for a file that is missing, damaged, holds a malformed record or one id twice,
    mixes databases, or whose version is unknown or not the declared one.
    """
    path = Path(path)
    raw = read_bytes(path)
    try:
        records = json.loads(raw)
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}", "get the official file again") from error
    if not isinstance(records, list) or not records:
        raise DataError(
            f"{path} holds no list of questions",
            "name a question file of EHRSQL, such as valid.json",
        )
    questions = [_question(path, i, record) for i, record in enumerate(records)]
    ids = [q.id for q in questions]
    if len(set(ids)) != len(ids):
        twice = sorted({i for i in ids if ids.count(i) > 1})[:3]
        raise DataError(f"{path} holds an id twice: {', '.join(twice)}", "get the file again")
    databases = sorted({q.db_id for q in questions})
    if len(databases) > 1:
        raise DataError(
            f"{path} mixes databases: {', '.join(databases)}", "keep one file per database"
        )
    known = _version(path, questions, version)
    return QuestionFile(path, known, databases[0], questions, hashlib.sha256(raw).hexdigest())


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where it ends in `.xz`. Raises DataError."""
    try:
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}",
            "name the official file (.json or .json.xz)",
        ) from error
    except lzma.LZMAError as error:
        raise DataError(f"{path} is cut short or no xz file", "get the file again") from error


def _question(path: Path, number: int, record: Any) -> Question:
    lacks = [k for k in _NEEDED if not isinstance(record, dict) or k not in record]
    if lacks:
        raise DataError(
            f"{path}: record {number} has no {', '.join(lacks)}",
            "name a question file of EHRSQL with gold queries",
        )
    impossible = bool(record["is_impossible"])
    if not impossible and not str(record["query"] or "").strip():
        raise DataError(
            f"{path}: record {number} has no gold query and is not marked is_impossible",
            "name a question file of EHRSQL with gold queries",
        )
    group = record["template"] if impossible else record.get("q_tag") or record["template"]
    where, answer = f"{path}: record {number}", record.get("answer")
    return Question(
        id=str(record["id"]),
        text=record["question"],
        query=None if impossible else record["query"],
        group=str(group),
        db_id=str(record.get("db_id") or "mimic_iii"),
        split=str(record.get("split") or record.get("src_split") or ""),
        source_id=str(record.get("src_id") or record["id"]),
        regrounded="src_id" in record or "src_question" in record,
        answer=None if impossible or answer is None else _rows(where, answer),
        meta={
            k: record[k]
            for k in ("template", "q_tag", "value", "importance", "para_type", "kind")
            if record.get(k) is not None
        },
    )


def literal(where: str, text: Any) -> list[Any]:
    """The list that an answer is, kept as the text of a Python literal. Raises DataError."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(text, str) or not isinstance(found, list):
        raise DataError(
            f"{where} has an answer that is no list of rows: {str(text)[:40]!r}",
            "get the file again",
        )
    return found


def _rows(where: str, answer: Any) -> tuple[tuple[Any, ...], ...]:
    """Rows that the file keeps each as the text of a Python tuple."""
    try:
        rows = [ast.literal_eval(text) for text in literal(where, answer)]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise DataError(
            f"{where} has a row of an answer that is no tuple: {str(answer)[:40]!r}",
            "get the file again",
        ) from error
    return tuple(row if isinstance(row, tuple) else (row,) for row in rows)


def _version(path: Path, questions: Sequence[Question], declared: str | None) -> str:
    regrounded = [q.regrounded for q in questions if q.query is not None]
    if any(regrounded):
        if not all(regrounded):
            raise DataError(
                f"{path} mixes {sum(regrounded)} re-grounded questions with others",
                "keep re-grounded and official questions in files of their own",
            )
        return f"{REGROUNDED}-{declared}" if declared else REGROUNDED
    anchors = json.loads((files(__package__) / "versions.json").read_text())
    known: dict[str, dict[str, str]] = anchors.get(questions[0].db_id, {})
    matches: dict[str, int] = {}
    met = 0
    for question in questions:
        hashes = known.get(question.id)
        if hashes is None:
            continue
        met += 1
        digest = hashlib.sha256(question.text.encode()).hexdigest()[:12]
        for version, expected in hashes.items():
            matches[version] = matches.get(version, 0) + (digest == expected)
    found = [v for v, n in matches.items() if met and n == met]
    if found and declared not in (None, found[0]):
        raise DataError(
            f"{path} holds the questions of version {found[0]}, not {declared}",
            f"set version: {found[0]}, or name the other file",
        )
    if found:
        return found[0]
    if declared is None:
        raise DataError(
            f"{path} is of an unknown version ({met} known ids, none of the known texts)",
            "if it is an official file, say which: version: 1.5.1",
        )
    if any(matches.values()):
        raise DataError(
            f"{path} mixes question texts of several versions", "get the official file again"
        )
    return declared
