"""Strict scoring (Appendix F): the same decisions under every label the run has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentinel.report import ladder
from sentinel.report.blocks import Cell, Data, Head, Row, Section, TableView, text
from sentinel.report.load import Run
from sentinel.report.who import first_of_each, who

SYSTEMS = ("vanilla", "full", "early-exit")


def sections(run: Run) -> list[Section]:
    """The ladder by label, the primary one first, decisions unchanged; [] with one label only."""
    rows = [
        {**row, "label": str(label)}
        for monitor in run.monitors
        for label, rungs in (monitor.evaluation.get("rescored") or {}).items()
        for row in ladder.of_monitor(monitor, rungs)
    ]
    if not rows:
        return []
    again = {ladder.name_of(row) for row in rows}
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for monitor in run.monitors:
        name = (monitor.benchmark, monitor.agent)
        if name not in again:
            continue
        primary = [{**row, "label": "primary"} for row in ladder.of_monitor(monitor)]
        for row in (*primary, *(r for r in rows if ladder.name_of(r) == name)):
            if row["system"] in SYSTEMS:
                key = (*name, row["label"], row["system"])
                lines.setdefault(key, {**row, "at": {}})["at"][row["lam"]] = row
    stakes = ladder.lambdas(rows)

    def rs(lam: str) -> Callable[[Row], Cell | str]:
        return lambda row: ladder.score(row["at"].get(lam), "rs", mark=True)

    def gain(lam: str) -> Callable[[Row], Cell | str]:
        return lambda row: ladder.score(row["at"].get(lam), "rs_minus_abstain")

    def accuracy(lam: str) -> Callable[[Row], Cell | str]:
        return lambda row: ladder.share(row["at"].get(lam), "accuracy", "no answer was delivered")

    view = TableView(
        Data("ladder_rescored", (*ladder.COLUMNS, "label"), rows),
        "",
        (
            *who(blank=True),
            Head("Label", text("label"), number=False),
            Head("System", ladder.system_name, number=False),
            *(Head(ladder.stake(lam), rs(lam), group="RS(λ)") for lam in stakes),
            *(Head(ladder.stake(lam), gain(lam), group="RS − always abstain") for lam in stakes),
            *(Head(ladder.stake(lam), accuracy(lam), group="Accuracy") for lam in stakes),
        ),
        rows=first_of_each(list(lines.values())),
        notes=("Primary: the run's own label, from the ladder. † as there.",),
    )
    lead = (
        "The same decisions scored by the run's other labels: heads, maps and thresholds were "
        "fitted to the primary label and stay as they are, so the size of a gain depends on who "
        "says what is right."
    )
    return [Section("rescored", "Strict scoring (Appendix F)", lead, (view,))]
