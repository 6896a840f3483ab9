"""Figures 3 to 7: the confidence layer of one agent in three panels, as the paper draws it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentinel.report import figures, ladder
from sentinel.report.blocks import Data, FigureView, Section, number, visible
from sentinel.report.load import Monitor, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERS = {
    "gpt-4o": 3,
    "gpt-4o-mini": 4,
    "qwen2.5-coder-7b": 5,
    "llama-3.1-8b": 6,
    "phi-4-mini": 7,
}
"""The paper's own agents keep their figures; others take the free numbers in turn."""
COLUMNS = ("benchmark", "agent", "figure", "panel", "series", "x", "y")


@dataclass(frozen=True, slots=True)
class _Panel:
    """One of the three: its lines, its axes' words and limits."""

    title: str
    lines: Sequence[figures.Line]
    xlabel: str
    ylabel: str
    unit: bool = True
    empty: str = ""


def numbers(monitors: Sequence[Monitor]) -> list[int | None]:
    """The paper's number of each monitor's figure; None beyond the five."""
    taken = {NUMBERS[m.agent.lower()] for m in monitors if m.agent.lower() in NUMBERS}
    free = iter([n for n in range(3, 8) if n not in taken])
    found: list[int | None] = []
    seen: set[int] = set()
    for m in monitors:
        own = NUMBERS.get(m.agent.lower())
        if own is not None and own not in seen:
            seen.add(own)
            found.append(own)
        else:
            found.append(next(free, None))
    return found


def section(run: Run) -> Section:
    """One figure per monitor: withholding, both heads step by step, reliability."""
    rows: list[dict[str, Any]] = []
    data = Data("figures_3_to_7", COLUMNS, rows)
    views = []
    for m, n in zip(run.monitors, numbers(run.monitors), strict=True):
        name = {"benchmark": m.benchmark, "agent": m.agent}
        panels = list(_panels(m))
        rows += [
            {**name, "figure": n, "panel": "abc"[k], "series": line.label, "x": x, "y": y}
            for k, panel in enumerate(panels)
            for line in panel.lines
            for x, y in zip(line.x, line.y, strict=True)
        ]
        area = number((m.evaluation.get("withhold") or {}).get("point"), digits=2)
        words = area if isinstance(area, str) else "undefined"
        title = visible(ladder.agent_name(run, name))
        views.append(
            FigureView(
                data,
                f"Figure {n} · {title}" if n else f"The panels of Figure 3 · {title}",
                _draw(panels),
                f"Held-out pool; withhold-classifier AUROC {words}. (a) Dots: Chow's rule at τ = "
                "0.5, 0.8, 0.9. (b) Later points cover only the longer runs still going. (c) The "
                "correctness head before and after its isotonic map.",
                f"figure-{n}" if n else "",
            )
        )
    lead = (
        "The full system as one withhold classifier, the AUROC of each head on the prefix of t "
        "steps, and the reliability of the correctness head: one figure per agent."
    )
    return Section("figures", "Figures 3 – 7, agent by agent", lead, tuple(views))


def _panels(m: Monitor) -> Iterator[_Panel]:
    found = m.evaluation.get("withhold") or {}
    curve = found.get("points")
    at: dict[tuple[float, float], list[str]] = {}
    for mark in found.get("chow") or []:
        at.setdefault((mark["fpr"], mark["tpr"]), []).append(f"{mark['tau']:g}")
    dots = [(x, y, "τ " + ", ".join(names)) for (x, y), names in at.items()]
    roc = [figures.Line("withhold ROC", curve["fpr"], curve["tpr"], marks=dots)] if curve else []
    yield _Panel(
        "(a) withholding",
        roc,
        "right answers withheld",
        "wrong answers withheld",
        empty="" if curve else "one class only",
    )
    lines = []
    for target, color in (("answerability", figures.PURPLE), ("correctness", figures.BLUE)):
        steps = [
            r
            for r in m.evaluation.get("auroc", ())
            if (r["target"], r["score"]) == (target, "head") and r["t"].isdigit()
        ]
        points = [(int(r["t"]), r["point"]) for r in steps if r["point"] is not None]
        if points:
            x, y = zip(*points, strict=True)
            lines.append(figures.Line(target, x, y, color, dots=True))
    yield _Panel(
        "(b) heads, step by step",
        lines,
        "steps seen, t",
        "AUROC",
        unit=False,
        empty="" if lines else "one class only",
    )
    lines = []
    for name, color, dashed in (
        ("head_raw", figures.GREY, True),
        ("head_mapped", figures.BLUE, False),
    ):
        bins = (m.evaluation.get("reliability", {}).get(name) or {}).get("bins", ())
        kept = [b for b in bins if b["n"]]
        title = name.replace("head_", "correctness head, ")
        stated, right = [b["confidence"] for b in kept], [b["accuracy"] for b in kept]
        if kept:
            lines.append(figures.Line(title, stated, right, color, dashed=dashed, dots=True))
    yield _Panel(
        "(c) reliability",
        lines,
        "stated probability",
        "share right",
        empty="" if lines else "no map",
    )


def _draw(panels: Sequence[_Panel]) -> str:
    def draw(axes: Axes, panel: _Panel) -> None:
        if panel.unit:
            axes.plot([0, 1], [0, 1], color=figures.FAINT, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_xlim(-0.02, 1.02)
            axes.set_ylim(-0.02, 1.02)
        else:
            from matplotlib.ticker import MaxNLocator

            axes.axhline(0.5, color=figures.FAINT, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_ylim(0.4, 1.02)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        for line in panel.lines:
            figures.draw_line(axes, line)
        if panel.empty:
            axes.text(0.5, 0.5, panel.empty, ha="center", va="center", transform=axes.transAxes)
        axes.set_xlabel(panel.xlabel)
        axes.set_ylabel(panel.ylabel)

    legend = [line for panel in panels[1:] for line in panel.lines]
    return figures.grid(panels, draw, columns=3, legend=legend)
