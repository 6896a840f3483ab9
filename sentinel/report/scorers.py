"""What correct means, on the page: the scorers by name, the judge, its audit by two people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentinel.errors import UserError
from sentinel.judge.prompt import PREFIX
from sentinel.judge.rules import JUDGED, UNJUDGED
from sentinel.report.blocks import Data, Facts, Head, Section, TableView, count, text, visible
from sentinel.report.load import Run
from sentinel.report.results import who
from sentinel.sql.compare import SCORERS

AGREEMENT = Path("judge") / "agreement.json"
"""What `sentinel judge-audit import` keeps, within a run directory."""
COLUMNS = ("benchmark", "agent", "label", "strict_right", "accepted", "rejected", "unjudged")


def sections(run: Run) -> list[Section]:
    """How each label of the run decides, and its judge, where it has one; [] without labels."""
    known = scorers(run)
    if not known:
        return []
    rows = counts(run)
    blocks: list[Any] = [Facts("Labels of this run", known)]
    lead = (
        "Whatever the label: an abstention is right exactly when the question has no answer, an "
        "answer to such a question is wrong, and so is a query that failed. "
    )
    if rows:
        blocks.append(
            TableView(
                Data("judge", COLUMNS, rows),
                "The judge",
                (
                    *who(),
                    Head("Judge", text("label"), number=False, varied=True),
                    Head("Strict-correct", lambda row: count(row["strict_right"])),
                    Head("Accepted", lambda row: count(row["accepted"]), group="Strict-wrong"),
                    Head("Rejected", lambda row: count(row["rejected"]), group="Strict-wrong"),
                    Head("No verdict", lambda row: count(row["unjudged"]), group="Strict-wrong"),
                ),
            )
        )
        found = _agreement(run.path / AGREEMENT)
        if found is None:
            lead += "The judge's verdicts have not been audited by people."
        else:
            blocks.append(Facts("The judge's audit by two people", facts(found)))
    return [Section("scorers", "What correct means", lead.strip(), tuple(blocks))]


def scorers(run: Run) -> tuple[tuple[str, str], ...]:
    """Name, behaviour and pinned version of every label that the run has."""
    found = run.table("labels").group_by(["label", "version"]).aggregate([]).to_pylist()
    pairs = sorted((str(row["label"]), str(row["version"])) for row in found)
    return tuple((visible(label), visible(_words(label, version))) for label, version in pairs)


def _words(label: str, version: str) -> str:
    if label.startswith(PREFIX):
        return (
            f"semantic ({version}): what the strict scorer rejects goes to a model that sees "
            "question, executed gold result and executed answer; what it accepts stays right"
        )
    named = SCORERS.get(label)
    return f"{named} (version {version})" if named else "the environment's own verdict"


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
        ("judge", visible(found["label"])),
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
    return value
