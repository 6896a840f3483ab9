"""The cascade's JSON document as flat rows, and what its sections share: names, order, colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sentinel.report import figures
from sentinel.report.blocks import Cell, Head, Row, count, percent, text, undefined

Document = Mapping[str, Any]
DEPLOYED = "cascade"
NAMES = {
    "cascade": "deployed policy",
    "margin": "margin alone",
    "single-gate": "single gate",
    "uniform": "uniform",
    "no-op": "no-op",
}
COLORS = {
    "cascade": figures.BLUE,
    "margin": figures.PURPLE,
    "single-gate": figures.ORANGE,
    "uniform": figures.GREEN,
    "no-op": figures.GREY,
}
NO_SUCCESS = "no success among the test episodes, so no recall"
NO_COST = "the test episodes cost nothing, so no share of it is saved"
SEEDS = (
    *("cell", "scorer", "mode", "target", "allocation", "seeds", "recall_mean", "recall_sd"),
    *("savings_mean", "savings_sd", "no_op", "no_recall", "note"),
)


def entries(document: Document) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """(Identity of the row, cell) per cell and scorer of the document, in its order."""
    for cell in document["cells"]:
        mode = cell.get("mode", document["mode"])
        yield {"cell": cell["cell"], "scorer": cell["scorer"], "mode": mode}, cell


def targets(document: Document) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """(Identity of the row, target) per cell, scorer and target: the first draw in full."""
    for name, cell in entries(document):
        for target in cell.get("targets", ()):
            yield {**name, "target": target["target"], "seed": cell["seed"]}, target


def summary(cell: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Mean ± sd over seeds: of a table's document, or of a sweep's; [] where it has one split."""
    if "summary" in cell:
        return list(cell["summary"])
    return list(cell["seeds"]["summary"]) if cell["seeds"] else []


def allocation_rows(document: Document) -> list[dict[str, Any]]:
    """One row per cell, scorer, target and allocation: mean ± sd over seeds, as the document has
    them; the figures of the only split, without sd, where it has one.
    """
    out: list[dict[str, Any]] = []
    for name, cell in entries(document):
        if summary(cell):
            for line in summary(cell):
                missing = line["no_recall"]
                note = f"{missing} seeds have no test success" if missing else None
                out.append({**name, **line, "note": note})
            continue
        for target in cell["targets"]:
            played = {DEPLOYED: {**target["test"], "aborts_nothing": target["aborts_nothing"]}}
            others = {k: v for k, v in target["others"].items() if v is not None}
            if target["method"] == "margin":
                others.pop("margin", None)
            for allocation, found in (played | others).items():
                out.append(
                    {
                        **name,
                        "target": target["target"],
                        "allocation": allocation,
                        "seeds": 1,
                        "recall_mean": found["recall"],
                        "recall_sd": None,
                        "savings_mean": found["savings"],
                        "savings_sd": None,
                        "no_op": int(found["aborts_nothing"]),
                        "no_recall": int(found["recall"] is None),
                        "note": NO_SUCCESS if found["recall"] is None else None,
                    }
                )
    return out


def who() -> tuple[Head, ...]:
    """Columns cell and scorer; left out where every row says the same, repetitions blank."""

    def cell(key: str) -> Callable[[Row], Cell | str]:
        shown = text(key)
        return lambda row: "" if not row.get("first", True) else shown(row)

    return (
        Head("Cell", cell("cell"), number=False, varied=True),
        Head("Scorer", cell("scorer"), number=False, varied=True),
    )


def pivot(rows: Sequence[Row], by: Sequence[str], across: str) -> list[dict[str, Any]]:
    """Rows to show: one per value of `by`, the others under `at` by the column `across`; `first`
    says whether a row begins another cell and scorer."""
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    before = None
    for row in rows:
        key = tuple(row[k] for k in ("cell", "scorer", *by))
        if key not in out:
            out[key] = {**row, "at": {}, "first": key[:2] != before}
            before = key[:2]
        out[key]["at"][row[across]] = row
    return list(out.values())


def at(value: Any, shown: Callable[[Row], Cell | str], missing: str = "") -> Head:
    """Column of a pivoted table for one value; without such a row blank, or a dash with why."""

    def cell(row: Row) -> Cell | str:
        found = row["at"].get(value)
        if found is None:
            return undefined(missing) if missing else ""
        return shown(found)

    return Head(str(value), cell)


def mode_head() -> Head:
    """The mode, in every table."""
    return Head("Mode", text("mode"), number=False)


def target_head() -> Head:
    """The target ρ*, as it was given."""
    return Head("Target", text("target"))


def spread(row: Row, name: str, more: Sequence[str] = ()) -> Cell | str:
    """Mean in per cent with ± sd below, and more lines; a dash with its reason where undefined."""
    mean, sd = row[f"{name}_mean"], row[f"{name}_sd"]
    shown = percent(mean, NO_SUCCESS if name == "recall" else NO_COST)
    if isinstance(shown, Cell):
        return shown
    return Cell(shown, sub="\n".join([*([] if sd is None else [f"± {100 * sd:.1f}"]), *more]))


def whole(name: str) -> Callable[[Row], Cell | str]:
    """A count."""
    return lambda row: count(row[name], "not counted")


def panel_title(name: Mapping[str, Any], document: Document) -> str:
    """Title of a panel: the cell, and the scorer where there are several."""
    scorers = {cell["scorer"] for cell in document["cells"]}
    return str(name["cell"]) if len(scorers) == 1 else f"{name['cell']} · {name['scorer']}"


def of(rows: Sequence[Row], name: Mapping[str, Any]) -> list[Row]:
    """The rows of one cell and scorer."""
    return [r for r in rows if (r["cell"], r["scorer"]) == (name["cell"], name["scorer"])]


def modes(document: Document) -> str:
    """`mode strict, method fixed-sequence`: for captions."""
    return f"mode {document['mode']}, method {document['settings']['method']}"


def splits(document: Document) -> str:
    """How many splits the means are over, in words."""
    found = (max((line["seeds"] for line in summary(c)), default=1) for c in document["cells"])
    numbers = sorted(set(found))
    if numbers in ([], [1]):
        return "one split: points without a bar, no spread is known"
    many = "–".join(str(n) for n in dict.fromkeys((numbers[0], numbers[-1])))
    return f"mean of {many} splits, bars ± sd (the spread of the splits, no error of the mean)"


def size(document: Document) -> tuple[float, float]:
    """Of a panel, in inches: a single one is wider."""
    return figures.PANEL if len(document["cells"]) > 1 else (4.8, 2.9)


def tau(value: float | str) -> str:
    """A threshold, or the word "none"."""
    return value if isinstance(value, str) else f"{value:.4g}".replace("-", "−")
