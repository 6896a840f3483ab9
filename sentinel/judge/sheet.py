"""The audit's sheets: seeded cases as CSV, one file per rater, blind to the judge's verdict.

A sheet survives Excel and LibreOffice: case names are words, no cell begins like a formula, and a
byte-order mark, another delimiter, other columns beside ours and another order of rows are read.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentinel.errors import UserError

COLUMNS = ("case", "question", "gold_result", "answer_result", "verdict")
REMEDY = "mend the sheet: 1 where the answer says what the gold result says, 0 where not"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_VERDICTS = {"1": True, "0": False, "1.0": True, "0.0": False}


@dataclass(frozen=True, slots=True)
class AuditCase:
    """One case of the audit: its name, and what the judge was shown."""

    name: str
    shown: str


def case_name(key: str) -> str:
    """A case's name in a sheet: a word, whatever its hash (`1e5` and `0012` would be numbers)."""
    return f"case-{key[:12]}"


def draw(keys: Sequence[str], n: int, seed: int) -> list[str]:
    """`n` of the distinct keys, or all where there are fewer: a simple random sample by seed."""
    known = sorted(set(keys))
    return known if len(known) <= n else random.Random(seed).sample(known, n)


def sections(shown: str) -> tuple[str, str, str]:
    """Question, gold result and answer of what the judge was shown."""
    question, _, rest = shown.removeprefix("QUESTION: ").partition("\n\nGOLD RESULT: ")
    gold, _, rest = rest.partition("\n\nANSWER RESULT: ")
    return question, gold, rest.rpartition("\n\n")[0]


def write_sheet(cases: Sequence[AuditCase]) -> str:
    """A sheet with an empty column `verdict` (RFC 4180, CRLF)."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for case in cases:
        writer.writerow([case.name, *map(_plain, sections(case.shown)), ""])
    return out.getvalue()


def read_sheet(text: str, names: Sequence[str], where: str) -> dict[str, bool]:
    """case → verdict of a filled sheet. Raises UserError, one line, with the first fault found."""
    text = text.removeprefix("\ufeff")
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    try:
        rows = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(r)]
    except csv.Error as error:
        raise UserError(f"{where} is no CSV file: {error}", REMEDY) from error
    titles = [title.strip().lower() for title in rows[0]] if rows else []
    lacking = [c for c in ("case", "verdict") if titles.count(c) != 1]
    if lacking:
        raise UserError(f"{where} needs one column named {lacking[0]!r}", REMEDY)
    case_at, verdict_at = titles.index("case"), titles.index("verdict")
    known, found = set(names), {}
    for row in rows[1:]:
        name, verdict = (row[i].strip() if i < len(row) else "" for i in (case_at, verdict_at))
        if name not in known:
            raise UserError(f"{where}: no case {name[:60]!r} was exported", REMEDY)
        if name in found:
            raise UserError(f"{where}: {name} stands there twice", REMEDY)
        if verdict not in _VERDICTS:
            raise UserError(f"{where}: {name} has verdict {verdict[:20]!r}, not 1 or 0", REMEDY)
        found[name] = _VERDICTS[verdict]
    left = [name for name in names if name not in found]
    if left:
        raise UserError(
            f"{where} lacks {len(left)} of {len(names)} cases, such as {left[0]}", REMEDY
        )
    return found


def by_name(keys: Mapping[str, bool]) -> dict[str, bool]:
    """Verdicts by content address as verdicts by case name."""
    return {case_name(key): verdict for key, verdict in keys.items()}


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
