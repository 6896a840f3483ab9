"""Every monitor on every benchmark in one table, with the parts of each that were off and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sentinel.report import ladder
from sentinel.report.blocks import (
    Cell,
    Data,
    Head,
    Row,
    Section,
    TableView,
    count,
    number,
    percent,
    signed,
    text,
    undefined,
    visible,
)
from sentinel.report.load import Monitor, Run
from sentinel.report.load_cascade import Cascade

COLUMNS = (
    *("benchmark", "agent", "monitor", "evaluated_on", "episodes", "correct_before"),
    *("auroc", "auroc_of", "kept", "saved", "rs_lambda", "rs_vanilla", "rs_monitor"),
    *("off", "note"),
)
UNJUDGED = "off: the tasks do not say whether they can be answered"
NO_RS = "a cascade only aborts: it decides on no answer"


def section(run: Run) -> Section | None:
    """None where the run has neither kind of monitor."""
    rows = monitor_rows(run)
    if not rows:
        return None
    shown = [{**r, "first": i == 0 or _agent(rows[i - 1]) != _agent(r)} for i, r in enumerate(rows)]

    def name(key: str) -> Any:
        return lambda r: visible(r[key]) if r["first"] else ""

    def rs(row: Row) -> Cell | str:
        if row["rs_monitor"] is None:
            return undefined(NO_RS)
        return Cell(str(signed(row["rs_monitor"])), sub=f"from {signed(row['rs_vanilla'])}")

    def auroc(row: Row) -> Cell | str:
        shown = number(row["auroc"], "one class, or no score")
        return shown if isinstance(shown, Cell) else Cell(shown, sub=row["auroc_of"])

    table = TableView(
        Data("every_monitor", COLUMNS, rows),
        "",
        (
            Head("Benchmark", name("benchmark"), number=False),
            Head("Agent", name("agent"), number=False),
            Head("Monitor", text("monitor"), number=False),
            Head("Evaluated on", text("evaluated_on"), number=False),
            Head("Episodes", lambda r: count(r["episodes"])),
            Head("Correct without it", lambda r: percent(r["correct_before"], "no episode")),
            Head("AUROC of its score", auroc),
            Head("Correct kept", lambda r: percent(r["kept"], "nothing was correct")),
            Head("Cost saved", lambda r: percent(r["saved"], "nothing cost anything")),
            Head("RS(λ)", rs),
            Head("Parts that were off", lambda r: visible(r["off"] or "none"), number=False),
        ),
        rows=shown,
        notes=(
            "Correct kept: of the episodes that end correctly without the monitor, the share that "
            "still does. Sentinel: full system at the smallest λ with early exit; saved: steps. "
            "Cascade: saved: cost in its own unit. The two are measured on different episodes.",
            "A part that is off is not filled with a default: without answerability no gate exits, "
            "⊥ stands for an abort, answered means that the episode ended before the cap.",
        ),
    )
    lead = "Either method on either benchmark: nothing ties a monitor to a benchmark."
    return Section("every-monitor", "Every monitor on every benchmark", lead, (table,))


def monitor_rows(run: Run) -> list[dict[str, Any]]:
    """One row per benchmark, agent and monitor; a cascade has one per mode."""
    rows = [row for m in run.monitors if (row := _sentinel(run, m)) is not None]
    rows += [row for c in run.cascades for row in _cascade(run, c)]
    rows.sort(key=lambda r: (*run.place(r["benchmark"], r["agent"]), r["monitor"]))
    return rows


def _sentinel(run: Run, monitor: Monitor) -> dict[str, Any] | None:
    rungs = ladder.of_monitor(monitor)
    stakes = ladder.lambdas(rungs)
    if not stakes:
        return None
    lam = stakes[0]
    played = {r["system"]: r for r in rungs if str(r["lam"]) == lam}
    vanilla, early = played["vanilla"], played["early-exit"]
    n, right = vanilla["n"], vanilla["delivered_correct"]
    auroc = next(
        (
            r["point"]
            for r in monitor.evaluation.get("auroc", ())
            if (r["target"], r["t"], r["score"]) == ("correctness", "T", "head")
        ),
        None,
    )
    return {
        "benchmark": monitor.benchmark,
        "agent": monitor.agent,
        "monitor": f"sentinel (λ = {lam})",
        "evaluated_on": "held-out",
        "episodes": n,
        "correct_before": right / n if n else None,
        "auroc": auroc,
        "auroc_of": "correctness head, at delivery",
        "kept": early["delivered_correct"] / right if right else None,
        "saved": early["steps_saved"],
        "rs_lambda": lam,
        "rs_vanilla": vanilla["rs"],
        "rs_monitor": early["rs"],
        "off": "; ".join(_sentinel_off(run, monitor)),
        "note": None,
    }


def _sentinel_off(run: Run, monitor: Monitor) -> Iterator[str]:
    """The parts that the benchmark or the data leave out, and why."""
    if not judged(run, monitor.benchmark):
        yield "answerability head (no task says whether it can be solved)"
        yield "exit gate (it reads that head)"
        yield "exact bar and reweighting (they need unanswerable tasks)"
    elif (monitor.policy.get("gate") or {}).get("theta") == "never":
        yield "exit gate (see the policy's flags)"
    if monitor.policy.get("delivery_map") is None:
        yield "delivery map (one class), so no answer is delivered"


def _cascade(run: Run, cascade: Cascade) -> Iterator[dict[str, Any]]:
    settings = run.config.get("cascade") or {}
    main, deploy = settings.get("main", "stacking"), settings.get("deploy", "probe")
    off = "; ".join(_cascade_off(run, cascade))
    for mode, scorer in (("paper", main), ("strict", deploy)):
        facts = cascade.facts.get(mode, {}).get(scorer)
        document = cascade.documents.get(mode)
        cell = next((c for c in (document or {}).get("cells", ()) if c["scorer"] == scorer), None)
        if facts is None or cell is None:
            continue
        wanted = [t for t in cell["targets"] if float(t["target"]) == 0.9] or cell["targets"]
        target = wanted[0]
        line = next(
            (
                s
                for s in (cell["seeds"] or {}).get("summary", ())
                if (s["target"], s["allocation"]) == (target["target"], "cascade")
            ),
            None,
        )
        test = target["test"]
        best = _best(facts)
        yield {
            "benchmark": cascade.benchmark,
            "agent": cascade.agent,
            "monitor": f"cascade, {mode} (ρ* = {target['target']}, {scorer})",
            "evaluated_on": "test" if line is None else f"test, {line['seeds']} splits",
            "episodes": test["episodes"],
            "correct_before": test["successes"] / test["episodes"] if test["episodes"] else None,
            "auroc": best[0],
            "auroc_of": f"failure, round {best[1]}" if best[1] else "",
            "kept": test["recall"] if line is None else line["recall_mean"],
            "saved": test["savings"] if line is None else line["savings_mean"],
            "rs_lambda": None,
            "rs_vanilla": None,
            "rs_monitor": None,
            "off": off,
            "note": target["guarantee"]["text"],
        }


def _best(facts: Mapping[str, Any]) -> tuple[float | None, int]:
    """The largest AUROC over rounds, and its round."""
    known = [(r["auroc"], r["round"]) for r in facts["rounds"] if r["auroc"] is not None]
    return max(known, default=(None, 0), key=lambda pair: pair[0])


def _cascade_off(run: Run, cascade: Cascade) -> Iterator[str]:
    settings = run.config.get("cascade") or {}
    scorers = {s for mode in cascade.facts.values() for s in mode}
    if not scorers & {"probe", "stacking"}:
        yield "hidden states (no scorer of this run reads them)"
    known = {
        r["agent"]
        for r in run.table("intervals").to_pylist()
        if r["benchmark"] == cascade.benchmark and r["statistic"] == "failure_auroc_matched"
    }
    if settings.get("match") and cascade.agent not in known:
        yield f"matching by {settings['match']} (the tasks have none)"
    for mode in ("paper", "strict"):
        if mode in settings.get("modes", ()) and mode not in cascade.documents:
            yield f"{mode} mode (see the log of stage probes or search)"


def judged(run: Run, benchmark: str) -> bool:
    """Whether the benchmark's tasks say if they can be answered."""
    tasks = run.table("tasks")
    kinds = zip(tasks["benchmark"].to_pylist(), tasks["answerable"].to_pylist(), strict=True)
    return any(a is not None for b, a in kinds if b == benchmark)


def benchmarks(run: Run) -> list[str]:
    """Names of the benchmarks that the run has tasks of."""
    return list(dict.fromkeys(run.table("tasks")["benchmark"].to_pylist()))


def _agent(row: Row) -> tuple[str, str]:
    return row["benchmark"], row["agent"]
