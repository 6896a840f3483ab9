"""The abort-cascade paper's numbers beside a run's own, for the cells that both have.

`paper_cells.json` holds what the paper's text states, each number with its place. A paper's number
stands in a column of its own and enters no figure, mean or claim of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from sentinel.report import probe_auc
from sentinel.report.blocks import Cell, Data, Head, Row, Section, TableView, undefined, visible
from sentinel.report.cascade_rows import NAMES
from sentinel.report.load import Run

COLUMNS = (
    *("environment", "model", "agent", "quantity", "scorer", "allocation", "target", "round"),
    *("paper", "paper_high", "paper_source", "run", "run_sd", "run_seeds", "run_note"),
)
WHAT = {"savings": "cost saved", "recall": "recall", "auroc": "AUROC for failure"}
_PAPER = "As the paper states it"
Numbers = Mapping[str, Any]


@cache
def document() -> Numbers:
    """The committed file: `paper` (its title), `note`, and `numbers`."""
    found: Numbers = json.loads((files(__package__) / "paper_cells.json").read_text("utf-8"))
    return found


def section(run: Run) -> Section | None:
    """Our cells beside the paper's; None where a run has none of its environments and models."""
    found = rows(run)
    if not found:
        return None
    data = Data("paper_cells", COLUMNS, found)
    table = TableView(
        data,
        "",
        (
            Head("Environment", lambda r: visible(r["environment"]), number=False),
            Head("Model", lambda r: visible(r["model"]), number=False),
            Head("Number", _what, number=False),
            Head("Value", _paper, group=_PAPER),
            Head("Where", lambda r: str(r["paper_source"]), number=False, group=_PAPER),
            Head("Value", _ours, group="This run"),
            Head("Agent", lambda r: visible(r["agent"]), number=False, group="This run"),
        ),
        notes=(
            f"The paper: {document()['paper']}. {document()['note']}",
            "Prompts, sampling, task files and engines differ from the paper's: a gap is no "
            "failure to reproduce, and none of its numbers enters one of this run.",
        ),
    )
    return Section(
        "paper-cells",
        "Cascade: the paper's cells",
        "Paper mode, as the paper: test labels reach the scores, and nothing is promised. Its "
        "numbers and this run's stand in columns of their own.",
        (table,),
    )


def rows(run: Run) -> list[dict[str, Any]]:
    """One row per number of the paper whose environment and model this run has."""
    kinds = {str(b["name"]): str(b.get("kind") or b["name"]) for b in _listed(run, "benchmarks")}
    models = {
        str(a["name"]): str(a.get("model", "")).rstrip("/").rpartition("/")[2].lower()
        for a in _listed(run, "agents")
    }
    measured = _auroc(run)
    out = []
    for cascade in run.cascades:
        kind, model = kinds.get(cascade.benchmark), models.get(cascade.agent)
        for number in document()["numbers"]:
            if number["environment"] != kind or number["model"].lower() != model:
                continue
            key = (cascade.benchmark, cascade.agent, number["round"], number["scorer"])
            ours = (
                measured.get(key, {})
                if number["quantity"] == "auroc"
                else _summary(cascade.documents.get("paper"), number)
            )
            out.append(
                {
                    **{k: number[k] for k in COLUMNS if k in number},
                    "agent": cascade.agent,
                    "paper": number["value"],
                    "paper_high": number["high"],
                    "paper_source": number["source"],
                    "run": ours.get("value"),
                    "run_sd": ours.get("sd"),
                    "run_seeds": ours.get("seeds"),
                    "run_note": ours.get("note", "this run has not measured it"),
                }
            )
    return out


def _listed(run: Run, what: str) -> list[Mapping[str, Any]]:
    found = run.config.get(what)
    return [x for x in found if isinstance(x, dict)] if isinstance(found, list | tuple) else []


def _summary(document: Numbers | None, number: Numbers) -> dict[str, Any]:
    """Mean ± sd over splits of the number's scorer, allocation and target."""
    for cell in document["cells"] if document else ():
        if cell["scorer"] != number["scorer"] or not cell["seeds"]:
            continue
        for line in cell["seeds"]["summary"]:
            same = line["allocation"] == number["allocation"]
            if same and float(line["target"]) == float(number["target"]):
                what = number["quantity"]
                return {
                    "value": line[f"{what}_mean"],
                    "sd": line[f"{what}_sd"],
                    "seeds": line["seeds"],
                    "note": line.get("note") or "",
                }
    return {}


def _auroc(run: Run) -> dict[tuple[str, str, int, str], dict[str, Any]]:
    return {
        (r["benchmark"], r["agent"], r["round"], r["scorer"]): {
            "value": r["point"],
            "note": r["note"] or "",
        }
        for r in probe_auc.rows(run)
        if r["mode"] == "paper" and r["statistic"] == probe_auc.PLAIN and r["against"] is None
    }


def _what(row: Row) -> Cell | str:
    scorer = probe_auc.NAMES[row["scorer"]]
    if row["quantity"] == "auroc":
        return f"{WHAT['auroc']}, {scorer}, round {row['round']}"
    allocation = "searched cascade" if row["allocation"] == "cascade" else NAMES[row["allocation"]]
    return f"{WHAT[row['quantity']]} at {float(row['target']):.2f}, {allocation}, {scorer}"


def _paper(row: Row) -> Cell | str:
    if row["paper_high"] is None:
        return _number(row, row["paper"])
    return f"{_number(row, row['paper'])} to {_number(row, row['paper_high'])}"


def _ours(row: Row) -> Cell | str:
    if row["run"] is None:
        return undefined(str(row["run_note"] or "undefined in this run"))
    sd = "" if row["run_sd"] is None else f"± {100 * row['run_sd']:.1f}, {row['run_seeds']} splits"
    return Cell(_number(row, row["run"]), sub=sd)


def _number(row: Row, value: float) -> str:
    return f"{value:.3f}" if row["quantity"] == "auroc" else f"{100 * value:.1f} %"
