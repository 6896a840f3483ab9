"""Where the budget went per round, and how many episodes are still alive at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sentinel.report import figures
from sentinel.report.blocks import (
    Cell,
    Data,
    FigureView,
    Row,
    Section,
    TableView,
    percent,
    undefined,
    visible,
)
from sentinel.report.cascade_rows import (
    NO_COST,
    Document,
    at,
    entries,
    mode_head,
    modes,
    of,
    panel_title,
    pivot,
    size,
    target_head,
    targets,
    tau,
    who,
    whole,
)

GATES = (
    *("cell", "scorer", "mode", "seed", "target", "gate", "budget", "threshold"),
    *("alive", "read", "aborted", "lost", "saved", "episodes", "successes", "cost"),
    *("lost_share", "saved_share", "alive_share", "read_share", "note"),
)
ALIVE = ("cell", "scorer", "mode", "gate", "alive")
NOTHING = "the policy aborts nothing"


def gate_rows(document: Document) -> list[dict[str, Any]]:
    """One row per cell, scorer, target and gate of the first draw, with shares of the test sample:
    successes lost of all successes, cost saved of all cost, episodes alive and read of all."""
    out = []
    for name, target in targets(document):
        test, policy = target["test"], target["policy"]
        for i, gate in enumerate(test["gates"]):
            out.append(
                {
                    **name,
                    **gate,
                    "budget": policy["budget"][i] if policy["budget"] else None,
                    "threshold": policy["thresholds"][i],
                    **{k: test[k] for k in ("episodes", "successes", "cost")},
                    "lost_share": _share(gate["lost"], test["successes"]),
                    "saved_share": _share(gate["saved"], test["cost"]),
                    "alive_share": _share(gate["alive"], test["episodes"]),
                    "read_share": _share(gate["read"], test["episodes"]),
                    "note": target["reason"],
                }
            )
    return out


def sections(document: Document) -> list[Section]:
    """Two sections on one table: the budget per round, and the episodes alive per round."""
    rows = gate_rows(document)
    data = Data("cascade_gates", GATES, rows)
    drawn = f"{modes(document)}; the first split"

    def per_round(what: str, ylabel: str, caption: str) -> FigureView:
        bars = figures.bar_panels(
            panels(document, rows, what), xlabel="round", ylabel=ylabel, size=size(document)
        )
        return FigureView(data, "", bars, f"{caption} ({drawn}).")

    lost = per_round(
        "lost_share",
        "% of successes lost",
        "The recall budget: successes aborted at each round, in per cent of the test successes",
    )
    saved = per_round(
        "saved_share",
        "% of cost saved",
        "What it bought: cost saved by the aborts of each round, in per cent of the test cost",
    )
    gates = list(dict.fromkeys(r["gate"] for r in rows))
    table = TableView(
        data,
        "Round by round",
        (
            *who(),
            target_head(),
            *(replace(at(g, _gate), group="Cost saved at round") for g in gates),
            mode_head(),
        ),
        rows=pivot(rows, ["target"], "gate"),
        notes=(
            "Cost saved, of the test cost; below it the successes lost, of all test successes; the "
            "episodes aborted, of those that run until this gate reads them; the gate's budget; "
            "its threshold. “none”: the gate aborts nothing.",
        ),
    )
    alive = Data(
        "cascade_alive",
        ALIVE,
        [
            {**name, "gate": r + 1, "alive": n}
            for name, cell in entries(document)
            for r, n in enumerate(cell["alive"])
        ],
    )
    curve = FigureView(
        data,
        "",
        figures.line_panels(
            alive_panels(document, rows),
            xlabel="round",
            ylabel="share of test episodes",
            ylim=(0, 1.04),
            whole_x=True,
            size=size(document),
        ),
        f"Episodes that reach each round: by their own end (dashed), and under the deployed policy "
        f"of each target ({drawn}). A gate can save little where few episodes are left.",
    )
    counts = TableView(
        alive,
        "Alive in the whole table",
        (
            *who(),
            *(replace(at(g, whole("alive")), group="Episodes alive at round") for g in gates),
            mode_head(),
        ),
        rows=pivot(alive.rows, [], "gate"),
        notes=("Episodes with a known outcome, all pools together, before any abort.",),
    )
    return [
        Section(
            "budget",
            "Where the budget went",
            "Each target may lose a share of the successes; these are the rounds at which the "
            "deployed policy spends it.",
            (lost, saved, table),
        ),
        Section("alive", "Episodes alive per round", "", (curve, counts)),
    ]


def panels(document: Document, rows: Sequence[Row], what: str) -> list[figures.BarPanel]:
    """One panel per cell and scorer, a bar per target at each round, in per cent."""
    found = []
    for name, cell in entries(document):
        part = of(rows, name)
        gates = [str(r + 1) for r in range(len(cell["alive"]))]
        series = []
        for k, target in enumerate(t["target"] for t in cell["targets"]):
            values = [r[what] for r in part if r["target"] == target]
            shown = [None if v is None else 100 * v for v in values]
            series.append((f"target {target}", shown, figures.CYCLE[k % len(figures.CYCLE)]))
        idle = all(t["aborts_nothing"] for t in cell["targets"])
        title = panel_title(name, document)
        found.append(figures.BarPanel(title, gates, series, "aborts nothing" if idle else ""))
    return found


def alive_panels(document: Document, rows: Sequence[Row]) -> list[figures.Panel]:
    """One panel per cell and scorer: alive by the own end, and still running per target."""
    found = []
    for name, cell in entries(document):
        part = of(rows, name)
        lines = []
        for k, target in enumerate(t["target"] for t in cell["targets"]):
            mine = [r for r in part if r["target"] == target]
            x = [r["gate"] for r in mine]
            color = figures.CYCLE[k % len(figures.CYCLE)]
            y = [r["read_share"] for r in mine]
            lines.append(figures.Line(f"target {target}", x, y, color, dots=True))
        if lines:
            mine = [r for r in part if r["target"] == cell["targets"][0]["target"]]
            own = [r["alive_share"] for r in mine]
            x = [r["gate"] for r in mine]
            lines.insert(0, figures.Line("own end", x, own, figures.GREY, dashed=True))
        found.append(figures.Panel(panel_title(name, document), lines))
    return found


def _share(part: int, total: int) -> float | None:
    return part / total if total else None


def _gate(row: Row) -> Cell | str:
    if row["budget"] is None:
        return undefined(f"{NOTHING}: {visible(row['note'])}" if row["note"] else NOTHING)
    lost = f"{row['lost']:,} of {row['successes']:,} lost" if row["successes"] else "no success"
    aborted = f"{row['aborted']:,} of {row['read']:,} aborted"
    gate = f"budget {row['budget']}\nτ {tau(row['threshold'])}"
    shown = percent(row["saved_share"], NO_COST)
    words = "\n".join((lost, aborted, gate))
    return replace(shown, sub=words) if isinstance(shown, Cell) else Cell(shown, sub=words)
