"""Sections on the abort cascades of a run: what they keep and save, and what that hangs on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sentinel.report import (
    cascade_budget,
    cascade_cost,
    cascade_frontier,
    cascade_margins,
    cascade_results,
    figures,
    paper_cells,
    probe_auc,
)
from sentinel.report.blocks import (
    Cell,
    Data,
    FigureView,
    Head,
    Row,
    Section,
    TableView,
    count,
    text,
    visible,
)
from sentinel.report.cascade_rows import DEPLOYED, mode_head, spread, target_head
from sentinel.report.load import Run
from sentinel.report.load_cascade import merged

ABLATION = (
    *("cell", "scorer", "mode", "target", "seeds", "recall_mean", "recall_sd"),
    *("savings_mean", "savings_sd", "no_op", "no_recall"),
)
ALIVE = ("benchmark", "agent", "round", "alive", "successes", "failures", "unlabelled")
PAPER = (
    "Paper mode: every score is cross-fitted over all episodes and the splits are re-drawn by "
    "seed, so that test labels reach the scores. Nothing here is promised; ± is the spread of the "
    "splits. "
)


def sections(run: Run) -> list[Section]:
    """All sections of the cascades; [] where the run has none."""
    if not run.cascades:
        return []
    main = str(_setting(run, "main", "stacking"))
    paper = merged(run.cascades, "paper", main)
    strict = merged(run.cascades, "strict")
    found: list[Section] = []
    if strict is not None:
        found.append(
            _named(
                cascade_results.section(strict),
                "Cascade: deployed policies",
                "Strict mode: disjoint tasks for fitting, calibration, testing. ",
            )
        )
    if paper is not None:
        frontier = cascade_frontier.sections(paper)
        scorer = f"Scorer {main}. "
        found += [_named(s, f"Cascade: {s.title.lower()}", PAPER + scorer) for s in frontier]
    found += [s for s in (paper_cells.section(run),) if s]
    found += [s for s in (_ablation(run), probe_auc.section(run), probe_auc.claim(run)) if s]
    found.append(_alive(run))
    if paper is not None:
        rows = run.tables.get("cascade_margins")
        swept = [] if rows is None else rows.to_pylist()
        margins = cascade_margins.section(paper, swept)
        found.append(_named(margins, "Cascade: margin sweep", PAPER))
    if strict is not None:
        budget = cascade_budget.sections(strict)[0]
        found.append(_named(budget, f"Cascade: {budget.title.lower()}", "Strict mode. "))
        cost = cascade_cost.section(strict)
        found.append(_named(cost, f"Cascade: {cost.title.lower()}", ""))
    return found


def tiles(run: Run) -> list[tuple[str, str]]:
    """Headline numbers of the cascades."""
    strict = merged(run.cascades, "strict")
    if strict is None:
        return []
    found = [t for cell in strict["cells"] for t in cell["targets"]]
    kept = [t for t in found if t["guarantee"]["guaranteed"]]
    saved = [t["test"]["savings"] for t in kept if t["test"]["savings"] is not None]
    tile = (f"{len(kept)} of {len(found)}", "strict policies (agent × target) carry a guarantee")
    if not saved:
        return [tile]
    ends = dict.fromkeys(f"{100 * v:.1f}" for v in (min(saved), max(saved)))
    return [tile, (" – ".join(ends) + " %", "of the test cost saved by those policies")]


def _named(section: Section, title: str, before: str) -> Section:
    return replace(
        section, id=f"cascade-{section.id}", title=title, lead=f"{before}{section.lead}".strip()
    )


def _setting(run: Run, name: str, default: Any) -> Any:
    settings = run.config.get("cascade")
    return settings.get(name, default) if isinstance(settings, dict) else default


def _ablation(run: Run) -> Section | None:
    """The same pipeline under every scorer, at one target."""
    target = str(_setting(run, "ablation_target", "0.95"))
    document = merged(run.cascades, "paper")
    if document is None:
        return None
    rows = []
    for cell in document["cells"]:
        for line in cell["seeds"]["summary"] if cell["seeds"] else ():
            if line["allocation"] == DEPLOYED and float(line["target"]) == float(target):
                name = {"cell": cell["cell"], "scorer": cell["scorer"], "mode": "paper"}
                rows.append({**name, **line})
    if not rows:
        return None
    scorers = list(dict.fromkeys(str(r["scorer"]) for r in rows))
    order = [s for s in probe_auc.COLORS if s in scorers]
    rows.sort(key=lambda r: (str(r["cell"]), order.index(r["scorer"])))
    cells = list(dict.fromkeys(str(r["cell"]) for r in rows))
    at = {(r["cell"], r["scorer"]): r for r in rows}
    data = Data("scorer_ablation", ABLATION, rows)
    panels = [
        figures.BarPanel(
            cell,
            [""],
            [
                (probe_auc.NAMES[s], [at[cell, s]["savings_mean"]], probe_auc.COLORS[s])
                for s in order
                if (cell, s) in at
            ],
        )
        for cell in cells
    ]
    figure = FigureView(
        data,
        "",
        figures.bar_panels(panels, ylabel="test savings"),
        f"Mean test savings at target {visible(target)} under each scorer; gates, search, splits "
        "and margin are the same. Read it with the recall in the table.",
    )
    shown = [{**r, "first": i == 0 or rows[i - 1]["cell"] != r["cell"]} for i, r in enumerate(rows)]
    table = TableView(
        data,
        "",
        (
            Head("Cell", lambda r: visible(r["cell"]) if r["first"] else "", number=False),
            Head("Scorer", lambda r: probe_auc.NAMES[r["scorer"]], number=False),
            target_head(),
            Head("Recall", lambda r: spread(r, "recall"), group="Test"),
            Head("Savings", lambda r: spread(r, "savings"), group="Test"),
            Head("Idle splits", lambda r: f"{r['no_op']} of {r['seeds']}"),
            mode_head(),
        ),
        rows=shown,
        notes=(
            "Task only and random features are controls: what they save is what the pipeline "
            "makes of a scorer that has not seen the episode.",
        ),
    )
    lead = PAPER + "Only the scorer differs between the bars of a panel."
    return Section("cascade-ablation", "Cascade: scorer ablation", lead, (figure, table))


def _alive(run: Run) -> Section:
    """Episodes that still run at each round, by their own end, and how many of them succeed."""
    rows = alive_rows(run)
    cells = list(dict.fromkeys((r["benchmark"], r["agent"]) for r in rows))
    panels = []
    for benchmark, agent in cells:
        mine = [r for r in rows if (r["benchmark"], r["agent"]) == (benchmark, agent)]
        rounds = [float(r["round"]) for r in mine]
        lines = [
            figures.Line(name, rounds, [float(r[key]) for r in mine], color)
            for name, key, color in (
                ("alive", "alive", figures.GREY),
                ("of these succeed", "successes", figures.GREEN),
                ("of these fail", "failures", figures.RED),
            )
        ]
        panels.append(figures.Panel(f"{benchmark}/{agent}", lines))
    data = Data("alive_episodes", ALIVE, rows)
    figure = FigureView(
        data,
        "",
        figures.line_panels(panels, xlabel="round", ylabel="episodes", whole_x=True),
        "Episodes whose own end lies at or after the round. A gate sees no others, whichever "
        "episodes earlier gates have aborted.",
    )
    first = [r for r in rows if r["round"] == 1]
    table = TableView(
        data,
        "",
        (
            Head("Benchmark", text("benchmark"), number=False, varied=True),
            Head("Agent", text("agent"), number=False),
            Head("Episodes", lambda r: count(r["alive"])),
            Head("Succeed", lambda r: _share(r, "successes")),
            Head("Fail", lambda r: _share(r, "failures")),
            Head("No outcome known", lambda r: count(r["unlabelled"])),
        ),
        rows=first,
    )
    lead = "Late gates see fewer episodes and guard less of the cost."
    return Section("cascade-alive", "Cascade: episodes alive", lead, (figure, table))


def alive_rows(run: Run) -> list[dict[str, Any]]:
    """Per agent with a cascade and round r = 1…max T: episodes alive, and their outcomes."""
    from sentinel.probes.cell import outcome
    from sentinel.tables import OUTCOME_ENDS

    answerable = {
        (r["benchmark"], r["task_id"]): r["answerable"] for r in run.table("tasks").to_pylist()
    }
    primary = str(run.config.get("label", ""))
    judged = {b for (b, _), a in answerable.items() if a is not None}
    verdict = {
        r["episode_id"]: r["correct"]
        for r in run.table("labels").to_pylist()
        if r["label"] == (primary if r["benchmark"] in judged else "success")
    }
    mine = {(c.benchmark, c.agent) for c in run.cascades}
    of_agent: dict[tuple[str, str], list[tuple[int, bool | None]]] = {}
    for e in run.table("episodes").to_pylist():
        key = (e["benchmark"], e["agent"])
        if key in mine and e["end"] in OUTCOME_ENDS:
            known = answerable.get((e["benchmark"], e["task_id"]))
            y = outcome(e["end"], known, verdict.get(e["episode_id"]))
            of_agent.setdefault(key, []).append((e["turns"], y))
    rows = []
    for (benchmark, agent), ends in sorted(of_agent.items(), key=lambda kv: run.place(*kv[0])):
        T = np.array([t for t, _ in ends])
        for r in range(1, int(T.max()) + 1):
            here = [y for t, y in ends if t >= r]
            rows.append(
                {
                    "benchmark": benchmark,
                    "agent": agent,
                    "round": r,
                    "alive": len(here),
                    "successes": sum(y is True for y in here),
                    "failures": sum(y is False for y in here),
                    "unlabelled": sum(y is None for y in here),
                }
            )
    return rows


def _share(row: Row, key: str) -> Cell | str:
    known = row["successes"] + row["failures"]
    if not known:
        return count(row[key])
    return Cell(f"{row[key]:,}", sub=f"{100 * row[key] / known:.1f} %")
