"""The page's order: what it says first, and the sections after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentinel.report import (
    about,
    bins,
    every_monitor,
    ladder,
    looks,
    monitors,
    quality,
    results,
    run_cascade,
)
from sentinel.report.blocks import Data, Head, Section, TableView, text
from sentinel.report.load import Run


def build(run: Run, folder: Path | None = None) -> list[Section]:
    """All sections, those on monitors only where the run has one; `folder` holds the ledger."""
    sections = []
    if run.monitors:
        rungs = Data("ladder", ladder.COLUMNS, ladder.rows(run))
        sections = [
            results.cross_agent(run),
            results.system_ladder(run, rungs),
            results.savings(run, rungs),
            quality.auroc(run),
            quality.reliability(run),
            quality.withhold(run),
            quality.risk_coverage(run),
            monitors.reweighting(run),
        ]
        sections += _rescored(run)
    sections += run_cascade.sections(run)
    both = every_monitor.section(run)
    if both is not None and run.cascades:
        sections.append(both)
    known = every_monitor.benchmarks(run)
    if not known or any(every_monitor.judged(run, b) for b in known):
        sections.append(about.economics(run))
    if run.monitors:
        sections += [
            monitors.thresholds(run),
            bins.confidence(run),
            monitors.intervals(run),
            looks.ledger(run, folder),
        ]
    return [*sections, about.counts(run), about.stages(run), about.provenance(run)]


def subtitle(run: Run) -> list[str]:
    """Two lines under the heading: what the page is about, and in which words."""
    watched = [(m.benchmark, str(m.agent)) for m in run.monitors]
    watched += [(c.benchmark, c.agent) for c in run.cascades]
    names = list(dict.fromkeys(agent for _, agent in watched))
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _ in watched))
    label = str(run.config.get("label", "not recorded"))
    lines = []
    if names:
        many = "1 agent" if len(names) == 1 else f"{len(names)} agents"
        lines.append(f"{many} on {', '.join(benchmarks)}: {', '.join(dict.fromkeys(names))}.")
    else:
        lines.append("No monitor has been fitted in this run yet.")
    lines.append(
        f"Correct means: {label}, {about.label_words(label)}{_verdicts(run, label)}. "
        "A dash is an undefined value."
    )
    return lines


def _verdicts(run: Run, label: str) -> str:
    """Which benchmarks the primary label does not reach: an environment's verdict is its own."""
    own = [b for b in every_monitor.benchmarks(run) if not every_monitor.judged(run, b)]
    if not own or label == "success":
        return ""
    return f"; on {', '.join(own)} success, the environment's own verdict"


def tiles(run: Run) -> list[tuple[str, str]]:
    """Headline numbers: a value, and what it counts."""
    rows = results.cross_rows(run)
    if not rows:
        return run_cascade.tiles(run)
    lam = ladder.lambdas(rows)[0]
    first = [row for row in rows if str(row["lam"]) == lam]

    def above(name: str) -> int:
        return sum((row[f"{name}_low"] or 0) > 0 for row in first)

    questions = sorted({row["questions"] for row in first})
    groups = sorted({row["groups"] for row in first})
    shares = [row["always_abstain"] for row in first if row["always_abstain"] is not None]
    many = f"{questions[0]:,}" + (f" – {questions[-1]:,}" if len(questions) > 1 else "")
    clusters = "–".join(str(g) for g in dict.fromkeys((groups[0], groups[-1])))
    unanswerable = f", {100 * max(shares):.1f} % unanswerable" if shares else ""
    n = len(first)
    interval = f"at {ladder.stake(lam)}, by the 95 % interval"
    return [
        (many, f"held-out questions per agent in {clusters} groups{unanswerable}"),
        (
            f"{above('full_minus_vanilla')} of {n} agents",
            f"the full system is above the vanilla agent {interval}",
        ),
        (
            f"{above('full_minus_abstain')} of {n} agents",
            f"the full system is above always abstain {interval}",
        ),
    ]


def _rescored(run: Run) -> list[Section]:
    """The ladder scored again by the run's other labels, decisions unchanged; [] where not made."""
    rows = [
        {**row, "label": str(label)}
        for monitor in run.monitors
        for label, rungs in (monitor.evaluation.get("rescored") or {}).items()
        for row in ladder.of_monitor(monitor, rungs)
    ]
    if not rows:
        return []
    stakes = ladder.lambdas(rows)
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        if row["system"] in ("vanilla", "full", "early-exit"):
            key = (*ladder.name_of(row), row["label"], row["system"])
            lines.setdefault(key, {**row, "at": {}})["at"][row["lam"]] = row

    def cell(lam: str, name: str) -> results.CellOf:
        if name == "rs":
            return lambda row: ladder.score(row["at"].get(lam), name, mark=True)
        return lambda row: ladder.share(row["at"].get(lam), name, "no answer was delivered")

    view = TableView(
        Data("ladder_rescored", (*ladder.COLUMNS, "label"), rows),
        "",
        (
            *results.who(blank=True),
            Head("Label", text("label"), number=False),
            Head("System", ladder.system_name, number=False),
            *(Head(ladder.stake(lam), cell(lam, "rs"), group="RS(λ)") for lam in stakes),
            *(Head(ladder.stake(lam), cell(lam, "accuracy"), group="Accuracy") for lam in stakes),
        ),
        rows=results.first_of_each(list(lines.values())),
    )
    lead = (
        "The same decisions scored by the run's other labels: heads, maps and thresholds were "
        "fitted to the primary label and stay as they are."
    )
    return [Section("rescored", "Strict scoring", lead, (view,))]
