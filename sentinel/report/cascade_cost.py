"""Certificate cost curve: how many independent successes a promise takes, whatever the scorer."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sentinel.cascade.planner import LOST, plan, successes_needed
from sentinel.report import figures
from sentinel.report.blocks import Cell, Data, FigureView, Head, Row, Section, TableView, count
from sentinel.report.cascade_rows import (
    Document,
    mode_head,
    pivot,
    target_head,
    targets,
    who,
    whole,
)

LADDER = ("0.8", "0.85", "0.9", "0.95", "0.98", "0.99")
GAP = "0.03"
COSTS = ("target", "alpha_each", *(f"lost_{n}" for n in LOST), "power")
HAVE = (
    *("cell", "scorer", "mode", "target", "method", "successes", "kept", "alpha"),
    *("needs_none_lost", "missing", "reachable", "note"),
)
UNTESTED = "no sample is tested under this method, so there is no count of independent successes"


def section(document: Document) -> Section:
    """The curve, its numbers at the usual targets, and what each cell has of them."""
    settings = document["settings"]
    shared = len(settings["targets"])
    each = Fraction(settings["alpha_promise"]) / shared
    names = sorted({*LADDER, *settings["targets"]}, key=Fraction)
    planned = plan(names, settings["alpha_promise"], LOST, gaps=[GAP], shared=shared)
    costs: list[dict[str, Any]] = [
        {
            "target": row["target"],
            "alpha_each": planned["alpha_each"],
            **{f"lost_{n}": row["lost"][str(n)] for n in LOST},
            "power": row["power"].get(GAP),
        }
        for row in planned["targets"]
    ]
    curve: list[dict[str, Any]] = [
        {
            "target": f"{rho / 1000:.3f}",
            "alpha_each": float(each),
            **{f"lost_{n}": successes_needed(Fraction(rho, 1000), each, n) for n in LOST},
        }
        for rho in (*range(800, 950, 10), *range(950, 994, 3))
    ]
    level = f"α = {settings['alpha_promise']}" + (f" shared by {shared}" if shared > 1 else "")
    marks = _have(document)
    dots = (
        "Large dots: the successes each tested sample of this table has, at the highest target it "
        "could carry with none lost. "
        if marks
        else ""
    )
    rows = have_rows(document)
    untested = all(row["successes"] is None for row in rows)
    figure = FigureView(
        Data("cascade_cost_curve", COSTS[:-1], curve),
        "Cost curve",
        figures.line_panels(
            [
                figures.Panel(
                    level,
                    [
                        figures.Line(
                            f"{n} lost",
                            [float(r["target"]) for r in curve],
                            [r[f"lost_{n}"] for r in curve],
                            figures.CYCLE[k],
                            marks=marks if n == 0 else (),
                        )
                        for k, n in enumerate(LOST)
                    ],
                )
            ],
            xlabel="target ρ*",
            ylabel="independent successes",
            log_y=True,
            size=(6.2, 3.3),
        ),
        f"Fewest independent successes at which a frozen policy that loses 0, 1, 2 or 5 of them "
        f"passes at its target ({level}); logarithmic. {dots}Mode {document['mode']}.",
    )
    table = TableView(
        Data("cascade_cost", COSTS, costs),
        "What a target costs",
        (
            target_head(),
            *(Head(f"{n} lost", whole(f"lost_{n}"), group="Successes needed") for n in LOST),
            Head(f"80 % chance at true recall + {GAP}", _power, group="Planning"),
        ),
        notes=(
            "Only successes of independent tasks count, one rollout of each.",
            *((f"This table: {UNTESTED}.",) if untested and rows else ()),
        ),
    )
    here = TableView(
        Data("cascade_cost_here", HAVE, rows),
        "What this table has",
        (
            *who(),
            target_head(),
            Head("Method", lambda r: str(r["method"]), number=False),
            Head("Successes", lambda r: count(r["successes"], UNTESTED), group="Tested sample"),
            Head("Survive", lambda r: count(r["kept"], UNTESTED), group="Tested sample"),
            Head("Needed, none lost", whole("needs_none_lost")),
            Head("Missing", lambda r: count(r["missing"], UNTESTED)),
            mode_head(),
        ),
        rows=pivot(rows, ["target"], "target"),
    )
    lead = (
        "A promise costs independent successes that nobody has looked at; a better scorer makes it "
        "worth more, not cheaper."
    )
    return Section(
        "cost", "What a promise costs", lead, (figure, table) if untested else (figure, table, here)
    )


def have_rows(document: Document) -> list[dict[str, Any]]:
    """Per cell, scorer and target: successes of the tested sample, and how many are missing."""
    out = []
    for name, target in targets(document):
        promise = target["guarantee"]
        have = promise.get("successes")
        out.append(
            {
                **name,
                "method": target["method"],
                "successes": have,
                "kept": promise.get("kept"),
                "alpha": promise.get("alpha"),
                "needs_none_lost": target["needs"],
                "missing": None if have is None else max(0, target["needs"] - have),
                "reachable": _reachable(promise),
                "note": UNTESTED if have is None else None,
            }
        )
    return out


def _reachable(promise: Mapping[str, Any]) -> float | None:
    """The bound that these successes would give with none lost: α^(1/n)."""
    n = promise.get("successes")
    return float(promise["alpha"]) ** (1 / n) if n else None


def _have(document: Document) -> list[tuple[float, float, str]]:
    """Points (reachable target, successes) per tested sample, each once, within the axis."""
    points: dict[tuple[float, float], str] = {}
    for row in have_rows(document):
        at = row["reachable"]
        if at is not None and 0.8 <= at <= 0.995:
            points.setdefault((at, float(row["successes"])), f"{row['successes']} here")
    return [(x, y, words) for (x, y), words in points.items()]


def _power(row: Row) -> Cell | str:
    return count(row["power"], "a recall that far above the target does not exist")
