"""Two views of the ladder: the early-stop mode (Table 8) and the exact bar (Appendix F)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentinel.report import ladder
from sentinel.report.blocks import Cell, Data, Head, Row, TableView, percent, signed, undefined
from sentinel.report.who import who

NOT_PLAYED = "this system was not played at this λ"


def early_mode(data: Data) -> TableView:
    """Table 8: RS(λ) with sequential stopping, and the steps never run."""
    stakes = ladder.lambdas(data.rows)
    shown = ladder.pivot(r for r in data.rows if r["system"] == "early-exit")

    def rs(lam: str) -> Callable[[Row], Cell | str]:
        return lambda row: ladder.score(row["at"].get(lam), "rs")

    def saved(lam: str) -> Callable[[Row], Cell | str]:
        return lambda row: ladder.share(row["at"].get(lam), "steps_saved", "no steps")

    return TableView(
        data,
        "Table 8 · Early-stop mode per agent",
        (
            *who(),
            *(Head(ladder.stake(lam), rs(lam), group="Early-stop RS(λ)") for lam in stakes),
            *(Head(ladder.stake(lam), saved(lam), group="Steps saved") for lam in stakes),
        ),
        rows=shown,
        anchor="table-8",
        notes=("Held-out pool; the stops were chosen on the calibration pool, per λ.",),
    )


def exact_bar(data: Data) -> TableView:
    """The full system under (λ+ε)/(1+λ) in place of λ/(1+λ), ε the chance of being unanswerable."""
    stakes = ladder.lambdas(data.rows)
    by = {(*ladder.name_of(r), r["system"], str(r["lam"])): r for r in data.rows}
    agents = ladder.pivot(r for r in data.rows if r["system"] == "full")

    def at(row: Row, system: str, lam: str) -> Any:
        return by.get((*ladder.name_of(row), system, lam))

    def change(lam: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            full, exact = at(row, "full", lam), at(row, "exact-bar", lam)
            if full is None or full["rs"] is None:
                return undefined(NOT_PLAYED)
            if exact is None or exact["rs"] is None:
                return undefined("off: committed calibration answers are of one kind of question")
            shown = signed(exact["rs"] - full["rs"])
            return Cell(str(shown), sub=f"{signed(full['rs'])} → {signed(exact['rs'])}")

        return show

    def coverage(lam: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            exact = at(row, "exact-bar", lam)
            return percent(None if exact is None else exact["coverage"], "off, or no question")

        return show

    return TableView(
        data,
        "Exact bar (Appendix F)",
        (
            *who(),
            *(Head(ladder.stake(lam), change(lam), group="RS(λ), exact − Chow") for lam in stakes),
            *(Head(ladder.stake(lam), coverage(lam), group="Coverage, exact") for lam in stakes),
        ),
        rows=agents,
        anchor="exact-bar",
        notes=(
            "Deliver iff p ≥ (λ+ε)/(1+λ); ε is the isotonic map of the answerability logit at T on "
            "the committed calibration answers. Nothing else is fitted anew.",
        ),
    )
