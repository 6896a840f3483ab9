"""Margin sweep: recall and savings of the margin's policy under other δ, on the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from sentinel.cascade.margins import margin_summary
from sentinel.report import figures
from sentinel.report.blocks import Cell, Data, FigureView, Row, Section, TableView, percent
from sentinel.report.cascade_rows import (
    Document,
    at,
    entries,
    mode_head,
    of,
    panel_title,
    pivot,
    size,
    spread,
    target_head,
    who,
)

COLUMNS = (
    *("cell", "scorer", "mode", "target", "margin", "margin_used", "seeds"),
    *("recall_mean", "recall_sd", "savings_mean", "savings_sd"),
    *("with_recall", "below", "no_op", "reason"),
)
_APART = 0.0004
"""Shift between neighbouring targets, so that their bars do not hide each other."""


def section(document: Document, rows: Sequence[Row]) -> Section:
    """`rows` as `margin_sweep` gives them; without any the section says why it is empty."""
    lines = margin_summary([dict(row) for row in rows])
    data = Data("cascade_margins", COLUMNS, lines)
    seeds = max((line["seeds"] for line in lines), default=0)
    drawn = f"mode {document['mode']}, method margin; " + (
        f"mean of {seeds} splits, bars ± sd." if seeds > 1 else "one split, no spread is known."
    )
    draw = figures.line_panels
    above = FigureView(
        data,
        "",
        draw(
            panels(document, lines, "recall"),
            xlabel="margin δ",
            ylabel="test recall − target",
            baseline=0,
            size=size(document),
        ),
        f"Mean test recall minus the target per margin δ; {drawn} Dotted: recall equals the "
        "target.",
    )
    saved = FigureView(
        data,
        "",
        draw(
            panels(document, lines, "savings"),
            xlabel="margin δ",
            ylabel="test savings",
            size=size(document),
        ),
        f"What the margin costs: share of the test cost saved; {drawn}",
    )
    missed = FigureView(
        data,
        "",
        draw(
            panels(document, lines, "below"),
            xlabel="margin δ",
            ylabel="splits below target",
            ylim=(-0.03, 1.03),
            baseline=0.5,
            size=size(document),
        ),
        "Share of the splits whose test recall lies below the target. This rate is observed on "
        "these splits; it bounds nothing. Dotted: half.",
    )
    given = sorted({str(line["margin"]) for line in lines}, key=Fraction)
    used = document["settings"]["margin"]
    # Whole per cents and the margin in use; the others are in the figures and in the file.
    given = [m for m in given if m == used or (100 * Fraction(m)).denominator == 1]
    table = TableView(
        data,
        "Every margin",
        (
            *who(),
            target_head(),
            *(replace(at(margin, _cell), group="Test recall at margin δ") for margin in given),
            mode_head(),
        ),
        rows=pivot(lines, ["target"], "margin"),
        notes=(
            "Mean test recall ± sd; saved: mean savings; below: splits whose recall is below the "
            "target, of those with a test success, compared exactly; idle: splits in which the "
            "policy aborts nothing, which enter with recall 100 %. "
            "Every δ of the figures is in the file.",
        ),
    )
    lead = (
        "The search asks for recall ρ* + δ on its own sample. A larger margin δ moves the mean "
        "recall up and savings down; it promises nothing at any size, and true recall may fall "
        "below the target in any single split. Gates, samples and search table are the same at "
        "every δ."
    )
    if not lines:
        lead += " Not swept here: the grid is too large to search, or no sweep was made."
    blocks = (above, saved, *((missed,) if seeds > 1 else ()), table)
    return Section("margins", "Margin sweep", lead, blocks if lines else (table,))


def panels(document: Document, lines: Sequence[Row], what: str) -> list[figures.Panel]:
    """One panel per cell and scorer, one line per target over δ."""
    found = []
    for name, _cell in entries(document):
        part = of(lines, name)
        drawn = []
        for k, target in enumerate(dict.fromkeys(str(r["target"]) for r in part)):
            mine = [r for r in part if r["target"] == target and not _unserved(r)]
            y, sd = _values(mine, what)
            if all(v is None for v in y):
                continue
            drawn.append(
                figures.Line(
                    f"target {target}",
                    [float(r["margin"]) + (_APART * k if any(sd) else 0) for r in mine],
                    y,
                    figures.CYCLE[k % len(figures.CYCLE)],
                    dots=True,
                    sd=sd,
                )
            )
        empty = "" if drawn else "no recall: undefined"
        found.append(figures.Panel(panel_title(name, document), drawn, empty))
    return found


def _values(rows: Sequence[Row], what: str) -> tuple[list[float | None], list[float | None]]:
    if what == "below":
        shares = [r["below"] / r["with_recall"] if r["with_recall"] else None for r in rows]
        return shares, []
    means = [r[f"{what}_mean"] for r in rows]
    if what == "recall":
        pairs = zip(means, rows, strict=True)
        means = [None if m is None else m - float(r["target"]) for m, r in pairs]
    return means, [r[f"{what}_sd"] for r in rows]


def _unserved(row: Row) -> bool:
    """The target and this margin exceed 1, so that nothing is aborted at any split."""
    return Fraction(row["target"]) + Fraction(str(row["margin_used"])) > 1


def _cell(row: Row) -> Cell | str:
    saved = percent(row["savings_mean"], digits=1)
    more = [] if isinstance(saved, Cell) else [f"{saved} saved"]
    if row["with_recall"]:
        more.append(f"{row['below']} of {row['with_recall']} below")
    if row["no_op"]:
        more.append(f"{row['no_op']} of {row['seeds']} idle")
    if float(row["margin_used"]) != float(row["margin"]):
        more.append(f"δ cut to {row['margin_used']:g}")
    return spread(row, "recall", more)
