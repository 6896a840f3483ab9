"""The page's order: what it says first, and the sections after it."""

from __future__ import annotations

from pathlib import Path

from sentinel.report import (
    about,
    audit,
    bins,
    every_monitor,
    ladder,
    looks,
    monitors,
    paper,
    per_agent,
    quality,
    results,
    run_cascade,
    scorers,
    screen,
    strict,
)
from sentinel.report.blocks import Data, Section
from sentinel.report.load import Run


def build(run: Run, folder: Path | None = None) -> list[Section]:
    """All sections, those on monitors only where the run has one; `folder` holds the ledger."""
    sections = []
    if run.monitors:
        rungs = Data("ladder", ladder.COLUMNS, ladder.rows(run))
        sections = [
            paper.section(run),
            results.cross_agent(run),
            results.system_ladder(run, rungs),
            results.savings(run, rungs),
            per_agent.section(run),
            quality.auroc(run),
            quality.reliability(run),
            quality.withhold(run),
            quality.risk_coverage(run),
            monitors.reweighting(run),
        ]
        sections += strict.sections(run)
    sections += run_cascade.sections(run)
    both = every_monitor.section(run)
    if both is not None and run.cascades:
        sections.append(both)
    known = every_monitor.benchmarks(run)
    if not known or any(every_monitor.judged(run, b) for b in known):
        sections.append(about.economics(run))
    if run.monitors:
        sections += [
            screen.section(run),
            audit.section(run),
            monitors.thresholds(run),
            bins.confidence(run),
            monitors.intervals(run),
            looks.ledger(run, folder),
        ]
    sections += scorers.sections(run)
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
