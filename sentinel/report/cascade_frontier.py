"""Savings frontier, and recall against target: the deployed policy beside its baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentinel.report import figures
from sentinel.report.blocks import Cell, Data, FigureView, Head, Row, Section, TableView, undefined
from sentinel.report.cascade_rows import (
    COLORS,
    NAMES,
    SEEDS,
    Document,
    allocation_rows,
    entries,
    mode_head,
    modes,
    of,
    panel_title,
    pivot,
    size,
    splits,
    spread,
    target_head,
    who,
)

_APART = 0.0016
"""Shift between neighbouring allocations, so that their bars do not hide each other."""


def sections(document: Document) -> list[Section]:
    """Two sections on one table: what is saved, and whether recall reached its target."""
    rows = allocation_rows(document)
    data = Data("cascade_allocations", SEEDS, rows)
    asked = sorted({float(r["target"]) for r in rows})
    drawn = f"{modes(document)}; {splits(document)}."
    frontier = FigureView(
        data,
        "",
        figures.line_panels(
            panels(document, rows, "savings"),
            xlabel="target ρ*",
            ylabel="test savings",
            ylim=(0, most(rows)),
            xticks=ticks(asked),
            size=size(document),
        ),
        f"Share of the test episodes' cost that is saved, per target; {drawn} Read it with the "
        "recall below: an allocation that misses its target saves more for that reason.",
    )
    recall = FigureView(
        data,
        "",
        figures.line_panels(
            panels(document, rows, "recall"),
            xlabel="target ρ*",
            ylabel="test recall",
            xlim=reach(asked),
            ylim=heights(rows),
            diagonal=True,
            xticks=ticks(asked),
            size=size(document),
        ),
        f"Share of the successful test episodes that survive, against the target (dotted: equal); "
        f"{drawn} A policy that aborts nothing enters with recall 1.",
    )
    given = [a for a in NAMES if a != "no-op" and any(r["allocation"] == a for r in rows)]
    table = TableView(
        data,
        "Every allocation",
        (
            *who(),
            target_head(),
            *(
                Head(what.capitalize(), _cell(allocation, what), group=NAMES[allocation])
                for allocation in given
                for what in ("recall", "savings")
            ),
            mode_head(),
        ),
        rows=pivot(rows, ["target"], "allocation"),
        notes=(
            "Test recall and savings. Baselines are searched under the same margin on the same "
            "gates: single gate spends the budget at one round, uniform the same at each. Aborting "
            "nothing keeps 100 % and saves 0 %.",
            "Splits in which a policy aborts nothing enter so; splits without test successes have "
            "no recall and are left out of its mean.",
        ),
    )
    return [
        Section(
            "frontier",
            "Savings frontier",
            "What each target costs in savings, for the deployed policy and for simpler ways to "
            "spend the same recall.",
            (frontier, table),
        ),
        Section(
            "recall",
            "Recall against target",
            "Mean recall should lie on or above the dotted line. A mean on the line means that "
            "about half of the splits lie below it.",
            (recall,),
        ),
    ]


def panels(document: Document, rows: Sequence[Row], what: str) -> list[figures.Panel]:
    """One panel per cell and scorer, one line per allocation over ascending targets."""
    found = []
    for name, _cell in entries(document):
        part = of(rows, name)
        lines = []
        for k, allocation in enumerate(a for a in NAMES if a != "no-op" or what == "recall"):
            mine = [r for r in part if r["allocation"] == allocation]
            mine.sort(key=lambda r: float(r["target"]))
            if not mine or all(r[f"{what}_mean"] is None for r in mine):
                continue
            lines.append(
                figures.Line(
                    NAMES[allocation],
                    [float(r["target"]) + _APART * (k - 1.5) for r in mine],
                    [r[f"{what}_mean"] for r in mine],
                    COLORS[allocation],
                    dots=True,
                    dashed=allocation == "no-op",
                    sd=[r[f"{what}_sd"] for r in mine],
                )
            )
        empty = "" if lines else f"no {what}: undefined"
        found.append(figures.Panel(panel_title(name, document), lines, empty))
    return found


def _cell(allocation: str, what: str) -> Callable[[Row], Cell | str]:
    def cell(row: Row) -> Cell | str:
        found = row["at"].get(allocation)
        if found is None:
            return undefined("no such candidate: the grid has no budget 1, or was not searched")
        more = []
        if found["no_op"] and what == "savings":
            one = found["seeds"] == 1
            more = ["idle" if one else f"{found['no_op']} of {found['seeds']} idle"]
        if found["no_recall"] and what == "recall":
            more = [f"{found['no_recall']} undefined"]
        return spread(found, what, more)

    return cell


def reach(asked: Sequence[float]) -> tuple[float, float]:
    """Limits of the axis of targets: a little beyond the outermost."""
    low, high = (asked[0], asked[-1]) if asked else (0.0, 1.0)
    room = max(0.02, 0.08 * (high - low))
    return low - room, high + room


def ticks(asked: Sequence[float]) -> list[float]:
    """The targets to label, ascending: the largest, and those that leave room for its words."""
    room = 0.12 * (asked[-1] - asked[0]) if asked else 0
    kept: list[float] = []
    for target in reversed(asked):
        if not kept or kept[-1] - target >= room:
            kept.append(target)
    return kept[::-1]


def heights(rows: Sequence[Row]) -> tuple[float, float]:
    """Limits of the axis of recall: every mean with its bar, every target, and 1."""
    low = [float(r["target"]) for r in rows]
    low += [r["recall_mean"] - (r["recall_sd"] or 0) for r in rows if r["recall_mean"] is not None]
    foot = min(low, default=0.0)
    return foot - 0.08 * (1 - foot) - 0.005, 1 + 0.05 * (1 - foot) + 0.005


def most(rows: Sequence[Row]) -> float:
    """Upper limit of the axis of savings: the largest mean with its bar."""
    known = [r for r in rows if r["savings_mean"] is not None]
    return 1.05 * max((r["savings_mean"] + (r["savings_sd"] or 0) for r in known), default=0) or 1.0
