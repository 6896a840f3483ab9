"""The judge on the page: how often it was asked and accepted, and the audit by two people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentinel.errors import UserError
from sentinel.judge.prompt import PREFIX
from sentinel.judge.rules import JUDGED, UNJUDGED
from sentinel.report.blocks import Data, Facts, Head, Section, TableView, count, text
from sentinel.report.load import Run
from sentinel.report.results import who

AGREEMENT = Path("judge") / "agreement.json"
"""What `sentinel judge-audit import` keeps, within a run directory."""
COLUMNS = ("benchmark", "agent", "label", "strict_right", "accepted", "rejected", "unjudged")


def sections(run: Run) -> list[Section]:
    """The judge's section, where the run has verdicts of one."""
    rows = counts(run)
    if not rows:
        return []
    view = TableView(
        Data("judge", COLUMNS, rows),
        "",
        (
            *who(),
            Head("Judge", text("label"), number=False, varied=True),
            Head("Strict-correct", lambda row: count(row["strict_right"])),
            Head("Accepted", lambda row: count(row["accepted"]), group="Strict-wrong"),
            Head("Rejected", lambda row: count(row["rejected"]), group="Strict-wrong"),
            Head("No verdict", lambda row: count(row["unjudged"]), group="Strict-wrong"),
        ),
    )
    found = _agreement(run.path / AGREEMENT)
    blocks = (view,) if found is None else (view, Facts("Audit by two people", facts(found)))
    names = ", ".join(sorted({row["label"] for row in rows}))
    lead = (
        f"{names}: answers to answerable questions that the strict scorer rejects went to a model "
        "that saw question, executed gold result and executed answer; strict-correct answers stay "
        "correct. "
    )
    lead += "" if found else "Its verdicts have not been audited by people."
    return [Section("judge", "Judge", lead.strip(), blocks)]


def counts(run: Run) -> list[dict[str, Any]]:
    """Per agent and judge: strict-correct answers, and what became of those it was asked about."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in run.table("labels").to_pylist():
        if not row["label"].startswith(PREFIX):
            continue
        key = (row["benchmark"], row["agent"], row["label"])
        line = found.setdefault(key, dict(zip(COLUMNS, (*key, 0, 0, 0, 0), strict=True)))
        if row["source"] == JUDGED:
            line["accepted" if row["correct"] else "rejected"] += 1
        elif row["source"] == UNJUDGED:
            line["unjudged"] += 1
        elif row["source"] == "match":
            line["strict_right"] += 1
    return sorted(
        found.values(), key=lambda r: (*run.place(r["benchmark"], r["agent"]), r["label"])
    )


def facts(found: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The audit as lines of the page."""
    agreement, table = found["agreement"], found["confusion"]
    share = "no undisputed case"
    if agreement["n"]:
        share = (
            f"{agreement['agreed']} of {agreement['n']}: {agreement['share']:.3f} "
            f"[{agreement['low']:.3f}, {agreement['high']:.3f}] (Wilson, 95 %)"
        )
    kappa = "undefined (one verdict throughout)"
    return (
        ("judge", str(found["label"])),
        ("cases", f"{found['cases']} of {found['population']}, drawn with seed {found['seed']}"),
        ("Cohen's κ of the raters", kappa if found["kappa"] is None else f"{found['kappa']:.3f}"),
        ("cases on which the raters differ", str(found["disputed"])),
        ("judge agrees with both raters", share),
        ("judge right, people right", str(table["judge_right_human_right"])),
        ("judge right, people wrong", str(table["judge_right_human_wrong"])),
        ("judge wrong, people right", str(table["judge_wrong_human_right"])),
        ("judge wrong, people wrong", str(table["judge_wrong_human_wrong"])),
    )


def _agreement(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_bytes())
        facts(value)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({error})",
            "import the sheets again: sentinel judge-audit import RUN_DIR SHEET SHEET",
        ) from error
    return value  # type: ignore[no-any-return]
