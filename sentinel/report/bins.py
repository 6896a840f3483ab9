"""The section on the calibration pool: accuracy by stated confidence (Appendix D)."""

from __future__ import annotations

from typing import Any

from sentinel.report import figures, ladder
from sentinel.report.blocks import (
    Cell,
    Data,
    FigureView,
    Head,
    Row,
    Section,
    TableView,
    count,
    percent,
    undefined,
)
from sentinel.report.load import Run
from sentinel.report.results import who

COLUMNS = ("benchmark", "agent", "low", "high", "n", "confidence", "accuracy")


def confidence(run: Run) -> Section:
    """Raw confidence bins of the head on the committed calibration answers."""
    rows: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    panels = []
    for m in run.monitors:
        name = {"benchmark": m.benchmark, "agent": m.agent}
        found = m.evaluation.get("calibration", {}).get("confidence_bins", {})
        bins = found.get("bins", [])
        rows += [{**name, **b} for b in bins]
        shown.append({**name, "at": {b["low"]: b for b in bins}, "n": found.get("n")})
        kept = [b for b in bins if b["n"]]
        line = figures.Line(
            "head, raw",
            [b["confidence"] for b in kept],
            [b["accuracy"] for b in kept],
            dots=True,
        )
        panels.append(figures.Panel(ladder.agent_name(run, name), [line]))
    data = Data("confidence_bins", COLUMNS, rows)

    def cell(low: float) -> Any:
        def show(row: Row) -> Cell | str:
            found = row["at"].get(low)
            if found is None or not found["n"]:
                return undefined("no answer in this bin")
            value = percent(found["accuracy"], digits=0)
            return Cell(str(value), sub=f"N = {found['n']:,}")

        return show

    lows = sorted({row["low"] for row in rows})
    table = TableView(
        data,
        "Share right, by stated probability",
        (
            *who(),
            Head("Answers", lambda r: count(r["n"], "not evaluated")),
            *(Head(f"{low:.1f} – {low + 0.1:.1f}", cell(low)) for low in lows),
        ),
        rows=shown,
        notes=(
            "Committed calibration answers; right = answerable and correct; the head's raw "
            "probability, before any map. Ten bins of 0.1, the last one closed.",
        ),
    )
    svg = figures.reliability_panels(panels)
    figure = FigureView(data, "", svg, "Calibration pool: what the maps had to correct.")
    return Section(
        "confidence",
        "Confidence bins, calibration pool (Appendix D)",
        "",
        (table, figure),
    )
