"""Sections on the estimates: AUROC per step, reliability, withholding, risk–coverage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sentinel.report import figures, ladder
from sentinel.report.blocks import (
    Cell,
    Data,
    FigureView,
    Head,
    Row,
    Section,
    TableView,
    count,
    number,
    percent,
    span,
    undefined,
)
from sentinel.report.every_monitor import UNJUDGED, judged
from sentinel.report.load import Monitor, Run
from sentinel.report.question_only import question_only
from sentinel.report.results import first_of_each, who

AUROC_COLUMNS = (
    *("benchmark", "agent", "target", "score", "t", "point", "low", "high", "n", "positives"),
    *("missing", "clusters", "resamples", "dropped", "note"),
)
CURVES = {
    "head_raw": ("head, raw", figures.GREY, True),
    "head_mapped": ("head, mapped", figures.BLUE, False),
    "deployed_raw": ("deployed, raw", figures.PURPLE, True),
    "deployed_mapped": ("deployed, mapped", figures.ORANGE, False),
}
ONE_CLASS = "AUROC needs both classes"


def _who(monitor: Monitor) -> dict[str, str]:
    return {"benchmark": monitor.benchmark, "agent": monitor.agent}


def auroc(run: Run) -> Section:
    """Figure 3b and Table 5: each head on the question alone, at every step, at delivery."""
    rows = [{**_who(m), **row} for m in run.monitors for row in m.evaluation.get("auroc", ())]
    data = Data("auroc", AUROC_COLUMNS, rows)
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (*ladder.name_of(row), row["target"])
        line = lines.setdefault(
            key, {"benchmark": key[0], "agent": key[1], "target": row["target"], "at": {}}
        )
        line["at"][row["t"] if row["score"] == "head" else "deployed"] = row

    def cell(t: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            found = row["at"].get(t)
            if found is None and t == "deployed":
                return undefined("the deployed estimator is for correctness")
            if found is None:
                return ""
            lacks = row["target"] == "answerability" and not judged(run, row["benchmark"])
            value = number(found["point"], UNJUDGED if lacks else ONE_CLASS)
            groups = f"N = {found['n']:,}"
            if isinstance(value, Cell):
                return Cell(value.text, sub=groups, reason=value.reason)
            ends = span(found["low"], found["high"]).replace("+", "") or found["note"] or ""
            return Cell(value, sub=f"{ends}\n{groups}" if t in ("T", "deployed") else groups)

        return show

    steps = sorted({int(t) for line in lines.values() for t in line["at"] if t.isdigit()})
    table = TableView(
        data,
        "AUROC of each head, step by step",
        (
            *who(blank=True),
            Head("Head", lambda row: row["target"], number=False),
            Head("head", cell("T"), group="At delivery"),
            Head("deployed", cell("deployed"), group="At delivery"),
            *(Head(f"t = {t}", cell(str(t)), group="Prefix of t steps") for t in steps),
        ),
        rows=first_of_each(list(lines.values())),
        notes=(
            "Correctness: answered, answerable questions. Answerability: all episodes, positive = "
            "unanswerable. At step t only episodes with T ≥ t are left (N): later points cover the "
            "longer runs still going.",
        ),
    )
    panels = [
        figures.Panel(
            ladder.agent_name(run, _who(m)),
            [
                _step_line(lines.get((m.benchmark, m.agent, target)), target, color, steps)
                for target, color in (
                    ("answerability", figures.PURPLE),
                    ("correctness", figures.BLUE),
                )
            ],
        )
        for m in run.monitors
    ]
    svg = figures.line_panels(
        panels,
        xlabel="steps seen, t",
        ylabel="AUROC",
        ylim=(0.4, 1.02),
        baseline=0.5,
        whole_x=True,
    )
    figure = FigureView(
        data, "", svg, "Held-out AUROC by prefix length; the dotted rule is chance."
    )
    return Section(
        "auroc",
        "Heads, step by step",
        "How well each head ranks episodes from the question alone (t = 0) to the whole "
        "transcript.",
        (question_only(run, data), table, figure),
    )


def _step_line(
    line: Mapping[str, Any] | None, target: str, color: str, steps: Sequence[int]
) -> figures.Line:
    at = {} if line is None else line["at"]
    values = [at[str(t)]["point"] if str(t) in at else None for t in steps]
    return figures.Line(target, list(steps), values, color, dots=True)


def reliability(run: Run) -> Section:
    """Figure 3c: what a stated probability is worth, raw and mapped, head and deployed."""
    bins: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    panels = []
    for m in run.monitors:
        curves = m.evaluation.get("reliability", {})
        lines = []
        for name, (title, color, dashed) in CURVES.items():
            curve = curves.get(name)
            if curve is None:
                continue
            errors.append(
                {**_who(m), "estimator": name, **{k: curve[k] for k in ("ece", "n", "missing")}}
            )
            bins += [{**_who(m), "estimator": name, **b} for b in curve["bins"]]
            if name.startswith("deployed") and _chosen(m) == "head":
                continue  # the same curve again
            kept = [b for b in curve["bins"] if b["n"]]
            lines.append(
                figures.Line(
                    title,
                    [b["confidence"] for b in kept],
                    [b["accuracy"] for b in kept],
                    color,
                    dashed=dashed,
                    dots=True,
                )
            )
        panels.append(figures.Panel(ladder.agent_name(run, _who(m)), lines))
    bins_data = Data(
        "reliability",
        ("benchmark", "agent", "estimator", "low", "high", "n", "confidence", "accuracy"),
        bins,
    )
    data = Data("ece", ("benchmark", "agent", "estimator", "ece", "n", "missing"), errors)
    by = {(*ladder.name_of(row), row["estimator"]): row for row in errors}

    def ece(name: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            found = by.get((*ladder.name_of(row), name))
            missing = "no committed answer has this estimate (no map, or no score)"
            return number(None if found is None else found["ece"], missing)

        return show

    def answers(row: Row) -> Cell | str:
        found = by.get((*ladder.name_of(row), "head_raw"))
        return count(None if found is None else found["n"] + found["missing"], "not evaluated")

    table = TableView(
        data,
        "Expected calibration error",
        (
            *who(),
            Head("raw", ece("head_raw"), group="Head"),
            Head("mapped", ece("head_mapped"), group="Head"),
            Head("raw", ece("deployed_raw"), group="Deployed estimator"),
            Head("mapped", ece("deployed_mapped"), group="Deployed estimator"),
            Head("Deployed", lambda r: r["chosen"], number=False),
            Head("Answers", answers),
        ),
        rows=[{**_who(m), "chosen": _chosen(m)} for m in run.monitors],
        notes=(
            "Committed held-out answers; the target is answerable and correct together. Ten "
            "bins of "
            "0.1, the last one closed.",
        ),
    )
    svg = figures.reliability_panels(panels)
    figure = FigureView(
        bins_data,
        "Reliability diagram (Figure 3c of every agent)",
        svg,
        "Mean stated probability against the share that was right, per non-empty bin. On the "
        "dotted "
        "line a probability means what it says.",
    )
    return Section("reliability", "Reliability", "", (table, figure))


def _chosen(monitor: Monitor) -> str:
    return str(monitor.policy.get("selection", {}).get("chosen", "—"))


def withhold(run: Run) -> Section:
    """Figure 3a: the full system as one classifier that withholds, with Chow's points."""
    points: list[dict[str, Any]] = []
    chow: list[dict[str, Any]] = []
    panels = []
    for m in run.monitors:
        found = m.evaluation.get("withhold", {})
        title = ladder.agent_name(run, _who(m))
        curve, marks = found.get("points"), found.get("chow") or []
        row = {**_who(m), **{k: found.get(k) for k in ("point", "low", "high", "n", "positives")}}
        row |= {k: found.get(k) for k in ("gated", "clusters", "dropped", "note")}
        for mark in marks:
            name = f"{mark['tau']:g}"
            row |= {f"tpr_{name}": mark["tpr"], f"fpr_{name}": mark["fpr"]}
        chow.append(row)
        if curve is None:
            panels.append(figures.Panel(title, empty="one class only"))
            continue
        points += [
            {**_who(m), "fpr": x, "tpr": y} for x, y in zip(curve["fpr"], curve["tpr"], strict=True)
        ]
        at: dict[tuple[float, float], list[str]] = {}
        for mark in marks:
            at.setdefault((mark["fpr"], mark["tpr"]), []).append(f"{mark['tau']:g}")
        dots = [(x, y, "τ " + ", ".join(names)) for (x, y), names in at.items()]
        line = figures.Line("withhold ROC", curve["fpr"], curve["tpr"], marks=dots)
        panels.append(figures.Panel(title, [line]))
    bars = sorted({key[4:] for row in chow for key in row if key.startswith("tpr_")}, key=float)
    data = Data(
        "withhold",
        (
            *("benchmark", "agent", "point", "low", "high", "n", "positives", "gated"),
            *("clusters", "dropped", "note"),
            *(f"{rate}_{bar}" for bar in bars for rate in ("tpr", "fpr")),
        ),
        chow,
    )

    def area(row: Row) -> Cell | str:
        value = number(row["point"], "all committed answers are right, or all wrong")
        if isinstance(value, Cell):
            return value
        return Cell(value, sub=span(row["low"], row["high"]).replace("+", "") or row["note"] or "")

    def rates(bar: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            wrong, right = row.get(f"tpr_{bar}"), row.get(f"fpr_{bar}")
            if wrong is None or right is None:
                return undefined("all committed answers are right, or all wrong")
            return f"{100 * wrong:.0f} % / {100 * right:.0f} %"

        return show

    table = TableView(
        data,
        "Withholding wrong answers",
        (
            *who(),
            Head("AUROC", area),
            Head("Answers", lambda r: count(r["n"], "not evaluated")),
            Head("Wrong", lambda r: count(r["positives"], "not evaluated")),
            Head("Gated", lambda r: count(r["gated"], "not evaluated")),
            *(Head(f"τ = {bar}", rates(bar), group="Withheld: wrong / right") for bar in bars),
        ),
        notes=(
            "Committed held-out answers; positive = wrong, or the question is unanswerable; "
            "score = "
            "1 − calibrated probability, answers that the gate exits at the top.",
        ),
    )
    svg = figures.line_panels(
        panels,
        xlabel="right answers withheld",
        ylabel="wrong answers withheld",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        diagonal=True,
    )
    figure = FigureView(
        Data("withhold_roc", ("benchmark", "agent", "fpr", "tpr"), points),
        "Withhold ROC (Figure 3a of every agent)",
        svg,
        "Dots: Chow's rule at τ = λ/(1+λ) = 0.5, 0.8, 0.9 for λ = 1, 4, 9.",
    )
    return Section(
        "withhold",
        "Withholding",
        "The full system seen as one classifier that withholds an answer.",
        (table, figure),
    )


def risk_coverage(run: Run) -> Section:
    """Risk of the delivered answers against coverage, over every bar."""
    rows: list[dict[str, Any]] = []
    panels, summary = [], []
    for m in run.monitors:
        found = m.evaluation.get("risk_coverage", {})
        keys = ("threshold", "coverage", "risk")
        lines = list(zip(*(found.get(k, ()) for k in keys), strict=True))
        rows += [{**_who(m), **dict(zip(keys, line, strict=True))} for line in lines]
        title = ladder.agent_name(run, _who(m))
        summary.append({**_who(m), "lines": lines})
        if not lines:
            panels.append(figures.Panel(title, empty="no answer passes any bar"))
            continue
        line = figures.Line("gate + bar", [c for _, c, _ in lines], [r for _, _, r in lines])
        panels.append(figures.Panel(title, [line]))
    data = Data("risk_coverage", ("benchmark", "agent", "threshold", "coverage", "risk"), rows)
    svg = figures.line_panels(
        panels, xlabel="coverage", ylabel="risk", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02)
    )
    figure = FigureView(
        data,
        "Risk–coverage",
        svg,
        "Risk = wrong / delivered, coverage = delivered / all questions, as the bar on the "
        "calibrated probability falls. The left end rests on few answers.",
    )

    def at(risk: float) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            good = [c for _, c, r in row["lines"] if r <= risk]
            return percent(max(good), digits=1) if good else undefined("no bar reaches this risk")

        return show

    table = TableView(
        data,
        "Largest coverage at a risk",
        (*who(), *(Head(f"risk ≤ {100 * r:.0f} %", at(r)) for r in (0.05, 0.1, 0.2, 0.3))),
        rows=summary,
        notes=("Read off the held-out curve, so an optimistic description and no promise.",),
    )
    return Section("risk-coverage", "Risk and coverage", "", (figure, table))
