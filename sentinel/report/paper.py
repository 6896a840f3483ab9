"""Where each table and figure of the paper stands on this page, and what is off and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sentinel.report import every_monitor, per_agent
from sentinel.report.blocks import Cell, Data, Head, Row, Section, TableView, text, visible
from sentinel.report.load import Run

COLUMNS = ("item", "shows", "pool", "anchor", "state")
HELD, TRAIN, CALIBRATION = "held-out, once", "train, out-of-fold", "calibration"
ITEMS = (
    ("Table 1", "RS(λ) across agents", HELD, "table-1"),
    ("Table 2", "steps, tokens and time saved", HELD, "table-2"),
    ("Table 3", "coverage and accuracy of each system", HELD, "table-3"),
    ("Table 4", "full system − always abstain, intervals", HELD, "table-4"),
    ("Table 5", "AUROC on the question alone and at delivery", HELD, "table-5"),
    ("Table 6", "features that survive the screen", TRAIN, "table-6"),
    ("Table 7", "the ladder of each agent", HELD, "table-7"),
    ("Table 8", "early-stop mode", HELD, "table-8"),
    ("Table 9", "step economics of unanswerable questions", TRAIN, "table-9"),
    ("Figures 3 – 7", "withholding, heads by step, reliability, per agent", HELD, "figures"),
    ("Appendix A", "leakage and artefact battery", TRAIN, "audit"),
    ("Appendix B", "labels, the judge and its audit by people", "all", "scorers"),
    ("Appendix C", "encoder rule", TRAIN, "encoder-rule"),
    ("Appendix D", "confidence bins", CALIBRATION, "confidence"),
    ("Appendix F", "other shares of unanswerable questions", HELD, "reweighting"),
    ("Appendix F", "exact bar", HELD, "exact-bar"),
    ("Appendix F", "strict scoring", HELD, "rescored"),
    ("Appendix J", "hybrid and family knock-outs", TRAIN, "knock-outs"),
    ("Appendix M", "seed variance", TRAIN, "seed-variance"),
)


def section(run: Run) -> Section:
    """The contents by the paper's numbers."""
    rows = [
        {
            **dict(zip(("item", "shows", "pool", "anchor"), item, strict=True)),
            "state": _state(run, item[3]),
        }
        for item in ITEMS
    ]

    def item(row: Row) -> Cell | str:
        there = not row["state"].startswith(("off", "not run"))
        return Cell(row["item"], href=row["anchor"]) if there else row["item"]

    table = TableView(
        Data("paper", COLUMNS, rows),
        "",
        (
            Head("In the paper", item, number=False),
            Head("Shows", text("shows"), number=False),
            Head("Pool", text("pool"), number=False),
            Head("Here", lambda r: visible(r["state"]), number=False),
        ),
        notes=(
            "Figures 1 and 2 of the paper are diagrams. An agent of the paper keeps its figure's "
            "number, other agents take the free ones in turn.",
        ),
    )
    return Section("paper", "By the paper's numbers", "", (table,))


def _state(run: Run, anchor: str) -> str:
    lacking = [b for b in every_monitor.benchmarks(run) if not every_monitor.judged(run, b)]
    known = [b for b in every_monitor.benchmarks(run) if every_monitor.judged(run, b)]
    partly = f"here; off for {', '.join(lacking)}: no task says whether it can be answered"
    if anchor in ("table-9", "reweighting", "exact-bar", "table-5"):
        if not known:
            return every_monitor.UNJUDGED if anchor != "table-5" else partly
        return partly if lacking else "here"
    if anchor == "scorers":
        kinds = {str(label) for label in run.table("labels")["label"].to_pylist()}
        if not kinds:
            return "off: no episode has a label"
        judged = any(label.startswith("judge:") for label in kinds)
        return "here" if judged else f"here; no judge, but {', '.join(sorted(kinds))}"
    if anchor == "rescored":
        made = any(m.evaluation.get("rescored") for m in run.monitors)
        return "here" if made else "off: the run has one label only"
    if anchor in ("table-6", "knock-outs"):
        if not run.table("feature_screen").num_rows:
            return "not run: sentinel audit"
        gone = list(_features_off(run))
        return f"here; off: {'; '.join(gone)}" if gone else "here"
    if anchor == "encoder-rule":
        return "here" if run.encoder_rule else "not run: sentinel compare-encoders"
    audit = run.table("audit").to_pylist()
    if anchor in ("audit", "seed-variance"):
        if not audit:
            return "not run: sentinel audit"
        spread = [r for r in audit if r["check"] == "seed-sd"]
        if anchor == "seed-variance" and all(r["value"] is None for r in spread):
            return next((str(r["note"]) for r in spread), "not run")
        return partly if lacking else "here"
    if anchor == "figures":
        found = per_agent.numbers(run.monitors)
        more = sum(n is None for n in found)
        names = ", ".join(
            f"{n}: {visible(m.agent)}" for m, n in zip(run.monitors, found, strict=True) if n
        )
        return f"{names}{f'; {more} more without a number' if more else ''}"
    return "here"


def _features_off(run: Run) -> Iterator[str]:
    """`bad_joins of every agent`: what was missing in every episode."""
    rows: list[dict[str, Any]] = run.table("feature_screen").to_pylist()
    agents = {(r["benchmark"], r["agent"]) for r in rows}
    gone: dict[str, list[str]] = {}
    for r in rows:
        if r["kind"] == "feature" and (r["note"] or "").startswith("off"):
            gone.setdefault(r["name"], []).append(r["agent"])
    by: dict[str, list[str]] = {}
    for name, of in gone.items():
        whom = "every agent" if len(of) == len(agents) else ", ".join(of)
        by.setdefault(whom, []).append(name)
    yield from (f"{', '.join(names)} of {whom}" for whom, names in by.items())
