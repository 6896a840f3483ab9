"""Sections on the monitors: frozen thresholds, other shares of questions, all intervals."""

from __future__ import annotations

from collections.abc import Iterable
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
    span,
    text,
    undefined,
    visible,
)
from sentinel.report.every_monitor import UNJUDGED, judged
from sentinel.report.ladder import SYSTEMS
from sentinel.report.load import Monitor, Run
from sentinel.report.results import CellOf, first_of_each, who


def _who(monitor: Monitor) -> dict[str, str]:
    return {"benchmark": monitor.benchmark, "agent": monitor.agent}


def thresholds(run: Run) -> Section:
    """Gate, maps, estimator and stops, as frozen on the calibration pool."""
    frozen, stops = [], []
    for m in run.monitors:
        gate, selection = m.policy.get("gate", {}), m.policy.get("selection", {})
        rate, counts = m.evaluation.get("gate", {}), m.policy.get("counts", {})
        frozen.append(
            {
                **_who(m),
                "theta": None if gate.get("theta") == "never" else gate.get("theta"),
                "gate_n": gate.get("n"),
                "gate_k": gate.get("k"),
                "gate_exiting": gate.get("exiting"),
                **{f"gate_heldout_{k}": rate.get(k) for k in ("point", "low", "high", "note")},
                "gate_heldout_answerable": rate.get("exits_answerable"),
                "gate_heldout_unanswerable": rate.get("exits_unanswerable"),
                **{k: selection.get(k) for k in ("chosen", "reason", "auroc_head")},
                "auroc_hybrid": selection.get("auroc_hybrid"),
                "selection_n": selection.get("n"),
                **{f"{n}_rows": (m.policy.get(n) or {}).get("rows") for n in _MAPS},
                "calibration": counts.get("calibration"),
                "committed": counts.get("committed"),
                "flags": "; ".join(map(str, m.policy.get("flags", ()))),
            }
        )
        stops += [
            {**_who(m), "lam": lam, "tau": float(lam) / (1 + float(lam)), **stop}
            for lam, stop in sorted(
                m.policy.get("stops", {}).items(), key=lambda item: float(item[0])
            )
        ]
    data = Data("thresholds", tuple(frozen[0]) if frozen else ("benchmark", "agent"), frozen)
    stop_data = Data(
        "stops",
        (
            "benchmark",
            "agent",
            "lam",
            "tau",
            "s",
            "good",
            "bad",
            "saved",
            "steps",
            "n",
            "candidates",
        ),
        stops,
    )

    def gate_rate(row: Row) -> Cell | str:
        value = percent(row["gate_heldout_point"], "no answerable held-out question", 2)
        if isinstance(value, Cell):
            return value
        low, high = row["gate_heldout_low"], row["gate_heldout_high"]
        ends = "" if low is None else f"[{100 * low:.2f}, {100 * high:.2f}]"
        return Cell(value, sub=ends or row["gate_heldout_note"] or "")

    def gate_hits(row: Row) -> Cell | str:
        hits = row["gate_heldout_answerable"], row["gate_heldout_unanswerable"]
        return undefined("not evaluated") if None in hits else f"{hits[0]:,} / {hits[1]:,}"

    def stop(row: Row) -> Cell | str:
        return row["s"] if isinstance(row["s"], str) else f"{row['s']:.4f}"

    def rs(row: Row) -> Cell | str:
        if not row["n"]:
            return undefined("no calibration episode")
        return signed((row["good"] - float(row["lam"]) * row["bad"]) / row["n"])

    def saved(row: Row) -> Cell | str:
        return percent(row["saved"] / row["steps"] if row["steps"] else None, "no steps")

    gates = TableView(
        data,
        "Exit gate and delivery estimator",
        (
            *who(),
            Head("θ", lambda r: number(r["theta"], "no gate, see flags", 5), group="Gate"),
            Head("n", lambda r: count(r["gate_n"]), group="Gate"),
            Head("may exit", lambda r: count(r["gate_k"]), group="Gate"),
            Head("answerable exited", gate_rate, group="Gate, held out"),
            Head("answ. / unansw.", gate_hits, group="Gate, held out"),
            Head("deployed", text("chosen"), number=False, group="Estimator"),
            Head("head", lambda r: number(r["auroc_head"], "one class"), group="Cal. AUROC"),
            Head("hybrid", lambda r: number(r["auroc_hybrid"], _HYBRID), group="Cal. AUROC"),
            Head("Answers", lambda r: count(r["committed"])),
            Head("Flags", lambda r: visible(r["flags"]), number=False),
        ),
        notes=(
            "θ: at most ⌊budget · n⌋ of the n answerable calibration questions exit. The hybrid is "
            "deployed only where its calibration AUROC beats the head's by more than the margin; "
            "stops always use the head.",
        ),
    )
    table = TableView(
        stop_data,
        "Stops and Chow's bar",
        (
            *who(blank=True),
            Head("λ", text("lam")),
            Head("τ = λ/(1+λ)", lambda r: number(r["tau"])),
            Head("stop below s", stop),
            Head("RS(λ), calibration", rs),
            Head("steps saved, calibration", saved),
            Head("Candidates", lambda r: count(r["candidates"])),
        ),
        rows=first_of_each(stops),
        notes=(
            "s maximises RS(λ) of gate + stop + Chow on the calibration episodes, over every "
            "candidate; these two columns are in-sample. “never” stops nothing, “always” refuses "
            "everything at t = 0.",
        ),
    )
    return Section(
        "thresholds",
        "Thresholds",
        "Fitted on the calibration pool alone, then frozen.",
        (gates, table),
    )


_MAPS = ("prefix_map", "head_map", "delivery_map", "unanswerable_map")
_HYBRID = "no hybrid: it lacks features or a class"


def reweighting(run: Run) -> Section:
    """Other shares of unanswerable questions, decisions frozen; the gate's share of the gain."""
    rows = [{**_who(m), **r} for m in run.monitors for r in m.evaluation.get("reweighted", ())]
    data = Data(
        "reweighted",
        (
            *("benchmark", "agent", "system", "lam", "share", "rs", "always_abstain", "point"),
            *("low", "high", "dagger", "n", "clusters", "resamples", "dropped", "note"),
        ),
        rows,
    )
    gains = [{**_who(m), **r} for m in run.monitors for r in m.evaluation.get("gate_share", ())]
    gain_data = Data(
        "gate_share",
        (
            *("benchmark", "agent", "lam", "share", "point", "low", "high", "n", "clusters"),
            *("resamples", "dropped", "note"),
        ),
        gains,
    )
    shares = sorted({str(r["share"]) for r in rows}, key=float)
    stakes = ladder.lambdas(rows)
    shown = _by_lambda_and_share(r for r in rows if r["system"] in ("vanilla", "gate", "full"))
    gained = _by_lambda_and_share({**row, "system": "-"} for row in gains)

    def score(lam: str, share: str) -> CellOf:
        def show(row: Row) -> Cell | str:
            found = row["by"].get((lam, share))
            if found is None or found["rs"] is None:
                off = not judged(run, row["benchmark"])
                return undefined(UNJUDGED if off else "one kind of question is missing")
            dagger = found["dagger"]
            difference = span(found["low"], found["high"], 2) or found["note"] or ""
            value = f"{signed(found['rs'], digits=2)}{' †' if dagger else ''}"
            return Cell(value, sub=difference, strong=dagger and found["point"] > 0)

        return show

    def gain(lam: str, share: str) -> CellOf:
        def show(row: Row) -> Cell | str:
            found = row["by"].get((lam, share))
            if found is None or found["point"] is None:
                return undefined("the full system equals the vanilla agent")
            ends = span(found["low"], found["high"], 2)
            return Cell(f"{100 * found['point']:.0f} %".replace("-", "−"), sub=ends)

        return show

    titles = {s: f"π = {100 * float(s):g} %" for s in shares}
    view = TableView(
        data,
        "RS(λ) at another share π of unanswerable questions",
        (
            *who(blank=True),
            Head("System", ladder.system_name, number=False),
            *(
                Head(ladder.stake(lam), score(lam, s), group=f"RS(λ) at {title}")
                for s, title in titles.items()
                for lam in stakes
            ),
        ),
        rows=first_of_each(shown),
        notes=(
            "Decisions frozen; RS = π · mean over unanswerable + (1 − π) · mean over answerable, "
            "both means anew in each resample. Always abstain scores π.",
            "Small print: the interval of the difference to always abstain; † it excludes 0, bold: "
            "and lies above.",
        ),
    )
    gate = TableView(
        gain_data,
        "The gate's share of the gain",
        (
            *who(),
            *(
                Head(ladder.stake(lam), gain(lam, s), group=title)
                for s, title in {"None": "The pool as it is", **titles}.items()
                for lam in stakes
            ),
        ),
        rows=gained,
        notes=("(gate − vanilla) / (full − vanilla), in RS(λ).",),
    )
    return Section(
        "reweighting",
        "Other shares of unanswerable questions (Appendix F)",
        "The pool's share of unanswerable questions is an accident of its making; what the "
        "monitor is "
        "worth depends on it.",
        (view, gate),
    )


def _by_lambda_and_share(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One row per agent and system, with the rows of each (λ, share) under `by`."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        line = found.setdefault((*ladder.name_of(row), row["system"]), {**row, "by": {}})
        line["by"][str(row["lam"]), str(row["share"])] = row
    order = {name: i for i, name in enumerate(SYSTEMS)}
    agents = {key[:2]: i for i, key in reversed(list(enumerate(found)))}

    def place(row: Row) -> tuple[int, int]:
        return agents[ladder.name_of(row)], order.get(row["system"], 0)

    return sorted(found.values(), key=place)


STATISTICS = {
    "rs": "RS(λ)",
    "rs_minus_abstain": "RS(λ) minus always abstain",
    "rs_minus_vanilla": "RS(λ) minus vanilla",
    "coverage": "coverage",
    "accuracy": "accuracy of delivered answers",
    "steps_saved": "share of steps saved",
    "gate_share": "the gate's share of the gain",
    "gate_rate_answerable": "answerable questions gated",
    "auroc_correctness": "AUROC of correctness, per step",
    "auroc_answerability": "AUROC of answerability, per step",
    "auroc_withhold": "AUROC of withholding",
}


def intervals(run: Run) -> Section:
    """How many intervals the run holds, how many could not be given, and what was dropped."""
    rows = _all_intervals(run)
    columns = (
        *("benchmark", "agent", "statistic", "system", "lam", "stratum", "point", "low", "high"),
        *("n", "clusters", "resamples", "dropped", "note"),
    )
    found: dict[str, dict[str, Any]] = {}
    zeros = dict.fromkeys(("intervals", "undefined", "few", "dropped", "most", "resamples"), 0)
    for row in rows:
        name = row["statistic"]
        line = found.setdefault(name, {"statistic": name, **zeros})
        line["intervals"] += 1
        line["undefined"] += row["point"] is None
        line["few"] += row["point"] is not None and row["low"] is None
        line["dropped"] += row["dropped"] or 0
        line["most"] = max(line["most"], row["dropped"] or 0)
        line["resamples"] += row["resamples"] or 0
    names = [*STATISTICS, *(n for n in found if n not in STATISTICS)]

    def statistic(row: Row) -> str:
        return STATISTICS.get(row["statistic"], str(row["statistic"]))

    view = TableView(
        Data("intervals", columns, rows),
        "",
        (
            Head("Statistic", statistic, number=False),
            Head("Intervals", lambda r: count(r["intervals"])),
            Head("Too few groups", lambda r: count(r["few"])),
            Head("Undefined", lambda r: count(r["undefined"])),
            Head("Resamples kept", lambda r: count(r["resamples"])),
            Head("Dropped", lambda r: count(r["dropped"])),
            Head("Most in one", lambda r: count(r["most"])),
        ),
        rows=[found[name] for name in sorted(found, key=lambda n: names.index(n))],
        notes=(
            "Over all agents, systems, λ and shares; each one is in the file.",
            "A resample is dropped where the statistic is undefined in it (a class, or a delivered "
            "answer, is missing).",
        ),
    )
    return Section(
        "intervals",
        "Intervals",
        f"{len(rows):,} intervals at 95 %, none corrected for their number: about one in twenty "
        "would miss its value by chance alone. The claims are the ones in the first table.",
        (view,),
    )


def _all_intervals(run: Run) -> list[dict[str, Any]]:
    """Rows of the intervals table in the order of the monitors; −1 for "no λ" becomes None."""
    rows = run.table("intervals").to_pylist()
    for row in rows:
        row["lam"] = None if row["lam"] < 0 else row["lam"]
    order = {ladder.name_of(_who(m)): i for i, m in enumerate(run.monitors)}
    return sorted(rows, key=lambda r: order.get(ladder.name_of(r), len(order)))
