"""Table 5: each head on the question alone and at delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentinel.report import ladder
from sentinel.report.blocks import Cell, Data, Head, Row, TableView, number, span, undefined
from sentinel.report.every_monitor import UNJUDGED, judged
from sentinel.report.load import Run
from sentinel.report.who import who


def question_only(run: Run, data: Data) -> TableView:
    """Held-out AUROC of each head at t = 0 and at T; `data` are the rows of every step."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for r in data.rows:
        if r["score"] == "head":
            line = lines.setdefault(ladder.name_of(r), {**r, "at": {}})
            line["at"][r["target"], r["t"]] = r

    def cell(target: str, t: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            if target == "answerability" and not judged(run, row["benchmark"]):
                return undefined(UNJUDGED)
            r = row["at"].get((target, t))
            value = number(None if r is None else r["point"], "AUROC needs both classes")
            if r is None or isinstance(value, Cell):
                return value
            ends = span(r["low"], r["high"]).replace("+", "") or r["note"] or ""
            return Cell(value, sub=f"{ends}\nN = {r['n']:,}")

        return show

    def gap(row: Row) -> Cell | str:
        both = [row["at"].get(("correctness", t), {}).get("point") for t in ("0", "T")]
        if None in both:
            return undefined("AUROC needs both classes")
        return f"{both[1] - both[0]:+.3f}".replace("-", "−")

    return TableView(
        data,
        "Table 5 · The question alone, and at delivery",
        (
            *who(),
            *(
                Head(title, cell(target, t), group=target.capitalize())
                for target in ("correctness", "answerability")
                for t, title in (("0", "t = 0"), ("T", "delivery"))
            ),
            Head("The trajectory adds", gap, group="Correctness "),
        ),
        rows=list(lines.values()),
        anchor="table-5",
        notes=(
            "The head scored on the question alone is the agent's question-only baseline. "
            "Correctness: answered, answerable episodes; answerability: all.",
        ),
    )
