"""Table 6: which features survive beside the head, and what each family carries (Appendix J)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentinel import tables
from sentinel.report.blocks import (
    Cell,
    Data,
    Head,
    Row,
    Section,
    TableView,
    count,
    number,
    signed,
    span,
    undefined,
)
from sentinel.report.load import Run
from sentinel.report.results import who
from sentinel.tables import FEATURES

FAMILIES = ("uncertainty", "execution", "schema")


def section(run: Run) -> Section:
    """The survivor matrix, and the hybrid with and without each family."""
    found = run.table("feature_screen").to_pylist()
    found.sort(key=lambda r: run.place(r["benchmark"], r["agent"]))
    data = Data("feature_screen", tuple(tables.FEATURE_SCREEN.columns), found)
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for r in found:
        line = lines.setdefault((r["benchmark"], r["agent"]), {**r, "at": {}})
        line["at"][r["kind"], r["name"]] = r
    shown = list(lines.values())
    intervals = sum(r["kind"] == "feature" and r["low"] is not None for r in found)
    return Section(
        "screen",
        "Feature screen",
        f"{_number_words(intervals)} no correction for their number: about one in twenty would "
        "exclude 0 by chance alone, so a single tick is a hint and no finding. Train pool, "
        "out-of-fold: not a held-out result.",
        (_matrix(shown, data), _families(shown, data)),
    )


def _number_words(n: int) -> str:
    words = {50: "Fifty", 10: "Ten", 20: "Twenty", 30: "Thirty", 40: "Forty"}
    return f"{words.get(n, f'{n:,}')} interval{'' if n == 1 else 's'},"


def _matrix(shown: list[dict[str, Any]], data: Data) -> TableView:
    def mark(name: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            r = row["at"].get(("feature", name))
            if r is None:
                return undefined("not screened")
            if r["delta"] is None or r["survivor"] is None:
                return undefined(r["note"] or "undefined")
            gap = f"{signed(r['delta'])}\n{span(r['low'], r['high'])}"
            return Cell("✓" if r["survivor"] else "×", sub=gap, strong=bool(r["survivor"]))

        return show

    def survivors(row: Row) -> Cell | str:
        known = [r for (kind, _), r in row["at"].items() if kind == "feature"]
        return count(sum(bool(r["survivor"]) for r in known))

    return TableView(
        data,
        "Table 6 · Which features survive the screen",
        (
            *who(),
            *(Head(name, mark(name)) for name in FEATURES),
            Head("Survivors", survivors),
        ),
        rows=shown,
        anchor="table-6",
        notes=(
            "✓: the 95 % template interval of AUROC(head and feature) − AUROC(head alone) lies "
            "above 0, on the answered, answerable train episodes at T. Second-level models: "
            f"gradient boosting on the heads' folds; {_resamples(data)} resamples of templates, "
            "predictions fixed.",
            "The trees pay for being fitted: with few episodes a feature that says nothing falls "
            "below 0, so a cross may mean too little data.",
            "A missing value is a branch of its own, never the neutral 0; a feature that is "
            "missing in every episode is off.",
        ),
    )


def _resamples(data: Data) -> str:
    asked = {r["resamples"] + r["dropped"] for r in data.rows if r["delta"] is not None}
    return " or ".join(f"{n:,}" for n in sorted(asked)) or "no"


def _families(shown: list[dict[str, Any]], data: Data) -> TableView:
    def gap(kind: str, name: str) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            r = row["at"].get((kind, name))
            if r is None or r["delta"] is None:
                return undefined((r or {}).get("note") or "not screened")
            clear = r["low"] is not None and (r["low"] > 0 or r["high"] < 0)
            ends = span(r["low"], r["high"]) or r["note"] or ""
            return Cell(str(signed(r["delta"])), sub=ends, strong=clear)

        return show

    def auroc(column: str) -> Callable[[Row], Cell | str]:
        return lambda row: number(
            (row["at"].get(("hybrid", "all")) or {}).get(column), "one class, or no feature"
        )

    def episodes(row: Row) -> Cell | str:
        return count((row["at"].get(("hybrid", "all")) or {}).get("n"), "not screened")

    return TableView(
        data,
        "Hybrid and knock-outs (Appendix J)",
        (
            *who(),
            Head("Episodes", episodes),
            Head("Head", auroc("auroc_base"), group="AUROC"),
            Head("Hybrid", auroc("auroc_model"), group="AUROC"),
            Head("Hybrid − head", gap("hybrid", "all")),
            *(
                Head(name, gap("family", name), group="Hybrid without … − hybrid")
                for name in FAMILIES
            ),
        ),
        rows=shown,
        anchor="knock-outs",
        notes=(
            "Families: uncertainty (4 features), execution (3), schema (3). Below 0: the family "
            "carries weight. Bold: the interval excludes 0.",
        ),
    )
