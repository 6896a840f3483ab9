"""Small figure functions: plain numbers in, SVG text out.

Each draws small multiples (one panel per agent) on `matplotlib.figure.Figure` directly, with no
pyplot state. Ids are hashed with a fixed salt, so the same numbers give the same bytes. Lines and
text in the foreground colour become `currentColor`, so that one figure serves a light page, a dark
page and paper. matplotlib is imported inside the functions: importing this module is free.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"  # stands for currentColor until the SVG is written
FAINT = "#040506"
# Okabe–Ito, moved to middle lightness so that each reads on white and on near-black.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#2f7fc1",
    "#d9822b",
    "#1f9d78",
    "#cc4b4b",
    "#a367b8",
    "#808a94",
)
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
PANEL = (3.0, 2.5)
"""Width and height of a panel in inches."""
_SETTINGS: Any = {
    "svg.hashsalt": "sentinel",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "legend.fontsize": 8,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel. NaN or None breaks it. `marks` are points drawn larger, with a label."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    color: str = BLUE
    dashed: bool = False
    dots: bool = False
    step: bool = False
    marks: Sequence[tuple[float, float, str]] = ()
    sd: Sequence[float | None] = ()
    """Half length of a vertical bar at each point; None draws none."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its lines, or the words that say why there are none."""

    title: str
    lines: Sequence[Line] = ()
    empty: str = ""


@dataclass(frozen=True, slots=True)
class BarPanel:
    """One panel of bars: a group per category, in it a bar per (name, values, colour)."""

    title: str
    categories: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None], str]]
    empty: str = ""
    rules: Sequence[float] = ()
    """Heights of horizontal lines to compare with."""


def line_panels(
    panels: Sequence[Panel],
    *,
    xlabel: str,
    ylabel: str,
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None,
    diagonal: bool = False,
    baseline: float | None = None,
    columns: int = 3,
    whole_x: bool = False,
    log_y: bool = False,
    xticks: Sequence[float] = (),
    size: tuple[float, float] = PANEL,
) -> str:
    """Small multiples of lines: ROC, reliability, risk–coverage, AUROC per step.

    `diagonal` draws y = x, `baseline` a horizontal rule, `log_y` a logarithmic axis in plain
    numbers; one legend serves all panels.
    """

    def draw(axes: Axes, panel: Panel) -> None:
        if diagonal:
            axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (2, 2)))
        if baseline is not None:
            axes.axhline(baseline, color=FAINT, linewidth=1, linestyle=(0, (2, 2)))
        for line in panel.lines:
            draw_line(axes, line)
        if panel.empty:
            axes.text(0.5, 0.5, panel.empty, ha="center", va="center", transform=axes.transAxes)
        if xlim:
            axes.set_xlim(*xlim)
        if ylim:
            axes.set_ylim(*ylim)
        if whole_x:
            from matplotlib.ticker import MaxNLocator

            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        if xticks:
            axes.set_xticks(list(xticks), [f"{x:g}" for x in xticks])
        if log_y:
            from matplotlib.ticker import NullFormatter, StrMethodFormatter

            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

    kinds: dict[str, Line] = {}
    for panel in panels:
        for line in panel.lines:
            kinds.setdefault(line.label, line)
    legend = list(kinds.values()) if len(kinds) > 1 else []
    return grid(panels, draw, columns=columns, legend=legend, size=size)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A point with an interval on a forest plot; None where undefined."""

    point: float | None
    low: float | None = None
    high: float | None = None
    color: str = BLUE


def reliability_panels(panels: Sequence[Panel]) -> str:
    """Stated probability against the share right, on [0, 1] with the diagonal."""
    return line_panels(
        panels,
        xlabel="stated probability",
        ylabel="share right",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        diagonal=True,
    )


def forest(
    blocks: Sequence[tuple[str, Sequence[tuple[str, Sequence[Estimate]]]]],
    *,
    xlabel: str,
    legend: Sequence[tuple[str, str]] = (),
) -> str:
    """Intervals against zero: a panel per block (a stakes level), a row per name (an agent).

    A row holds one estimate or several, drawn one below the other.
    """
    rows = max((len(lines) for _, lines in blocks), default=1)

    def draw(axes: Axes, block: tuple[str, Sequence[tuple[str, Sequence[Estimate]]]]) -> None:
        _, lines = block
        for row, (_name, estimates) in enumerate(lines):
            for k, e in enumerate(estimates):
                y = row + 0.3 * (k - (len(estimates) - 1) / 2)
                if e.point is None:
                    axes.text(0, y, "—", ha="center", va="center")
                    continue
                if e.low is not None and e.high is not None:
                    axes.plot([e.low, e.high], [y, y], color=e.color, linewidth=2, alpha=0.6)
                filled = e.color if e.low is not None else "none"
                axes.plot([e.point], [y], marker="o", markersize=5, color=e.color, mfc=filled)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(lines)), [label(name) for name, _ in lines])
        axes.set_ylim(rows - 0.45, -0.55)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(xlabel)

    lines = [Line(name, (), (), color, dots=True) for name, color in legend]
    height = 0.95 + 0.34 * rows
    return grid(
        blocks,
        draw,
        columns=3,
        legend=lines,
        size=(3.3, height),
        sharey=True,
        title=lambda block: block[0],
    )


def bars(
    categories: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None], str]],
    *,
    ylabel: str,
    rules: Sequence[float] = (),
) -> str:
    """Grouped bars; an undefined value is a dash at the foot of its place, not a bar of 0."""
    panel = BarPanel("", [label(c, 18) for c in categories], series, rules=rules)
    size = (max(5.0, 1.6 * len(categories)), 2.7)
    return bar_panels([panel], ylabel=ylabel, size=size)


def bar_panels(
    panels: Sequence[BarPanel],
    *,
    ylabel: str,
    xlabel: str = "",
    columns: int = 3,
    size: tuple[float, float] = PANEL,
) -> str:
    """Small multiples of grouped bars, one legend for all; undefined is a dash, not a bar of 0."""

    def draw(axes: Axes, panel: BarPanel) -> None:
        width = 0.8 / max(len(panel.series), 1)
        for k, (_name, values, color) in enumerate(panel.series):
            for i, value in enumerate(values):
                x = i - 0.4 + (k + 0.5) * width
                if value is None:
                    axes.text(x, 0, "—", ha="center", va="bottom")
                else:
                    axes.bar(x, value, width=width * 0.92, color=color)
        for rule in panel.rules:
            axes.axhline(rule, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
        if panel.empty:
            axes.text(0.5, 0.5, panel.empty, ha="center", va="center", transform=axes.transAxes)
        axes.set_ylim(0, None if any(v for _, vs, _ in panel.series for v in vs) else 1)
        axes.set_xticks(range(len(panel.categories)), [label(c) for c in panel.categories])
        axes.grid(axis="x", visible=False)
        axes.set_ylabel(ylabel)
        if xlabel:
            axes.set_xlabel(xlabel)

    kinds = {name: color for panel in panels for name, _, color in panel.series}
    legend = [Line(name, (), (), color, dots=True) for name, color in kinds.items()]
    return grid(panels, draw, columns=columns, legend=legend, size=size)


def label(text: str, width: int = 26) -> str:
    """Text for a figure: Latin, Greek and punctuation only (the font measures each glyph), cut."""
    clean = "".join(
        c if c in "—–−≥≤†…" or (unicodedata.category(c)[0] in "LNPSZ" and ord(c) < 0x530) else "?"
        for c in str(text).replace("\n", " ")
    )
    clean = clean if len(clean) <= width else clean[: width - 1] + "…"
    # A leading underscore hides an entry from matplotlib's legends.
    return "\u200a" + clean if clean.startswith("_") else clean


def draw_line(axes: Axes, line: Line) -> None:
    """Draw one line with its dots, marks and bars."""
    values = [math.nan if v is None else v for v in line.y]
    axes.plot(
        list(line.x),
        values,
        color=line.color,
        linewidth=1.5,
        linestyle=(0, (4, 2)) if line.dashed else "-",
        marker="o" if line.dots else None,
        markersize=3.5,
        drawstyle="steps-post" if line.step else "default",
    )
    if any(v is not None for v in line.sd):
        reach = [math.nan if v is None else v for v in line.sd]
        axes.errorbar(
            list(line.x), values, yerr=reach, fmt="none", ecolor=line.color, elinewidth=1, capsize=2
        )
    for k, (x, y, name) in enumerate(line.marks):
        axes.plot([x], [y], marker="o", markersize=6, color=line.color, markeredgecolor=INK)
        axes.annotate(
            label(name), (x, y), xytext=(7, -9 - 10 * k), textcoords="offset points", fontsize=7.5
        )


def grid(
    items: Sequence[Any],
    draw: Callable[[Axes, Any], None],
    *,
    columns: int,
    legend: Sequence[Line] = (),
    size: tuple[float, float] = PANEL,
    sharey: bool = False,
    title: Callable[[Any], str] = lambda panel: panel.title,
) -> str:
    """Lay `items` out on a grid, one legend above, and write the figure."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if not items:
        items, title = [None], lambda _: "nothing to draw"
        draw = lambda axes, _: axes.set_axis_off()  # noqa: E731
    columns = max(1, min(columns, len(items)))
    rows = math.ceil(len(items) / columns)
    width = columns * size[0]
    across = _across(legend, width)
    head = 0.14 + 0.18 * math.ceil(len(legend) / across) if legend else 0.0
    with rc_context(_SETTINGS):
        figure = Figure(
            figsize=(width, rows * size[1] + head), layout="constrained"
        )  # fmt: skip
        cells = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
        for axes, item in zip(cells, items, strict=False):
            draw(axes, item)
            axes.set_title(label(title(item), 34))
        for axes in cells[len(items) :]:
            axes.set_axis_off()
        if legend:
            _legend(figure, legend, across)
        return to_svg(figure)


def _across(lines: Sequence[Line], width: float) -> int:
    """How many entries of a legend fit side by side into `width` inches, at most five."""
    longest = max((len(label(line.label, 40)) for line in lines), default=0)
    return max(1, min(len(lines), 5, int(width / (0.55 + 0.065 * longest))))


def _legend(figure: Figure, lines: Iterable[Line], across: int) -> None:
    from matplotlib.lines import Line2D

    handles, names = [], []
    for line in lines:
        line = replace(line, marks=())
        handles.append(
            Line2D(
                [],
                [],
                color=line.color,
                linewidth=0 if line.dots and not line.x else 1.5,
                linestyle="--" if line.dashed else "-",
                marker="o" if line.dots else None,
                markersize=4,
            )
        )
        names.append(label(line.label, 40))
    figure.legend(handles, names, loc="outside upper center", ncols=across)


def to_svg(figure: Figure) -> str:
    """The figure as an `<svg>` element for a page: no XML header, no date, ids hashed, scalable."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = io.StringIO()
    with rc_context(_SETTINGS):
        FigureCanvasSVG(figure).print_svg(
            text, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>\s*", "", svg, count=1, flags=re.DOTALL)  # it styles the page
    # Names of groups repeat from figure to figure; the ids that are referred to are hashes.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' xmlns:xlink="[^"]*"| version="1.1"', "", svg, count=2)
    svg = svg.replace("xlink:href", "href")
    # The background is the page's.
    svg = re.sub(r"fill: ?#ffffff", "fill: none", svg)
    svg = svg.replace(FAINT, "var(--rule)").replace(INK, "currentColor")
    return re.sub(r' height="[^"]*"', ' class="plot" role="img"', svg, count=1)
