"""Simulated draws: how often each method's statement turns out false under a known law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentinel.report import figures
from sentinel.report.blocks import Cell, Data, FigureView, Head, Row, Section, TableView, percent
from sentinel.report.cascade_rows import target_head, whole

METHODS = (
    *("target", "method", "promises", "draws", "tasks", "alpha", "tolerance"),
    *("violated", "deployed", "savings"),
)
GATES = ("gate", "budget", "draws", "tasks", "alpha", "tolerance", "below")
CLUSTERED = ("target", "counted", "tasks", "rollouts", "draws", "alpha", "tolerance", "certified")


def section(simulated: Mapping[str, Sequence[Row]]) -> Section:
    """`simulated` as `simulated_rows` gives it."""
    methods, gates = simulated["methods"], simulated["gates"]
    first = methods[0]
    targets = list(dict.fromkeys(str(r["target"]) for r in methods))
    names = list(dict.fromkeys(str(r["method"]) for r in methods))
    line = f"α = {first['alpha']:g}"
    drawn = f"{first['draws']:,} draws, {first['tasks']} tasks per sample, one episode per task"
    levels = (100 * first["alpha"], 100 * first["tolerance"])
    data = Data("cascade_simulated", METHODS, methods)
    wrong = FigureView(
        data,
        "",
        figures.bar_panels(
            [
                figures.BarPanel(
                    title,
                    [_short(name) for name in names],
                    [
                        (f"target {t}", _of(methods, t, what), figures.CYCLE[k % 6])
                        for k, t in enumerate(targets)
                    ],
                    rules=rules,
                )
                for title, what, rules in (
                    ("true recall below target", "violated", levels),
                    ("mean savings", "savings", ()),
                )
            ],
            ylabel="% of draws; % of cost",
            columns=2,
            size=(4.6, 2.8),
        ),
        f"Left: per method the share of draws in which it deploys a policy whose true recall is "
        f"below the target; dashed: {line}, and {levels[1]:.1f} %, the most that a rate of α may "
        f"show in so many draws (α + 3σ). Right: what it saves on average. Mode strict; {drawn}.",
    )
    view = TableView(
        data,
        "Per method",
        (
            target_head(),
            Head("Method", lambda r: str(r["method"]), number=False),
            Head("Promises", _promises, number=False),
            Head("Below target", lambda r: percent(r["violated"]), group="Share of draws"),
            Head("Deployed", lambda r: percent(r["deployed"]), group="Share of draws"),
            Head("Mean savings", lambda r: percent(r["savings"])),
            Head("Draws", whole("draws")),
        ),
        notes=(
            "Below target: a policy is deployed and its true recall, known in closed form, is "
            "below the target. The margin promises nothing; its rate is what it is. The "
            "certificate follows a plain margin search.",
        ),
    )
    budgets = [b for b in dict.fromkeys(str(r["budget"]) for r in gates) if float(b) < 1]
    alone = FigureView(
        Data("cascade_simulated_gates", GATES, gates),
        "Each gate alone",
        figures.bars(
            [f"gate {g}" for g in dict.fromkeys(r["gate"] for r in gates)],
            [
                (
                    f"budget {b}",
                    [100 * r["below"] for r in gates if r["budget"] == b],
                    figures.CYCLE[k % len(figures.CYCLE)],
                )
                for k, b in enumerate(budgets)
            ],
            ylabel="% of draws below budget",
            rules=levels,
        ),
        f"Share of draws in which the true survival of a gate is below its budget; a gate that "
        f"aborts nothing keeps everything. {drawn[0].upper()}{drawn[1:]}; dashed as above.",
    )
    groups = TableView(
        Data("cascade_simulated_clustered", CLUSTERED, simulated["clustered"]),
        "Several rollouts per task",
        (
            target_head(),
            Head("Counted as independent", lambda r: str(r["counted"]), number=False),
            Head("Certified", lambda r: percent(r["certified"])),
            Head("Tasks", whole("tasks")),
            Head("Rollouts", whole("rollouts")),
            Head("Draws", whole("draws")),
        ),
        notes=(
            "How often a policy whose true recall is just below the target is certified; at most "
            f"{levels[0]:g} % is meant. Rollouts of one task resemble each other, so that counting "
            "all of them certifies too often.",
        ),
    )
    lead = (
        "Made-up episodes from a known law, not this table: what the four methods do when "
        "everything they assume is true, in strict mode."
    )
    return Section("simulated", "Simulated draws", lead, (wrong, view, alone, groups))


def _of(rows: Sequence[Row], target: str, name: str) -> list[float | None]:
    return [100 * r[name] for r in rows if r["target"] == target]


def _promises(row: Row) -> Cell | str:
    return f"at most {100 * row['alpha']:g} % below" if row["promises"] else "nothing"


def _short(name: str) -> str:
    return {"fixed-sequence": "sequence"}.get(name, name)
