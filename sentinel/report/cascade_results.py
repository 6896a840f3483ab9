"""What each cascade achieves and what may be said about it; its gates, samples and settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sentinel.report.blocks import (
    Cell,
    Data,
    Facts,
    Head,
    Row,
    Section,
    TableView,
    percent,
    text,
    visible,
)
from sentinel.report.cascade_rows import (
    NO_COST,
    NO_SUCCESS,
    Document,
    at,
    entries,
    mode_head,
    pivot,
    target_head,
    targets,
    tau,
    who,
    whole,
)

RESULTS = (
    *("cell", "scorer", "mode", "seed", "target", "method", "aborts_nothing", "reason"),
    *("episodes", "successes", "kept", "recall", "cost", "saved", "savings"),
    *("guaranteed", "promise", "conditions", "policy_hash"),
)
STRICTER = (
    *("cell", "scorer", "mode", "seed", "target", "stricter", "lost"),
    *("needs_none_lost", "needs_same_lost", "missing"),
)
GATES = ("cell", "scorer", "mode", "gate", "successes", "budget", "threshold", "needs")
SAMPLES = ("cell", "scorer", "mode", "sample", "episodes", "successes", "tasks", "unlabelled")


def result_rows(document: Document) -> list[dict[str, Any]]:
    """One row per cell, scorer and target: the deployed policy of the first draw."""
    return [
        {
            **name,
            "method": target["method"],
            "aborts_nothing": target["aborts_nothing"],
            "reason": target["reason"],
            **{k: v for k, v in target["test"].items() if k != "gates"},
            "guaranteed": target["guarantee"]["guaranteed"],
            "promise": target["guarantee"]["text"],
            "conditions": "; ".join(target["guarantee"].get("conditions", ())),
            "policy_hash": target["policy_hash"],
        }
        for name, target in targets(document)
    ]


def section(document: Document) -> Section:
    """Recall and savings of the first draw, what is promised in words, and what more would cost."""
    rows = result_rows(document)
    strict = [
        {**name, "stricter": step["target"], **{k: step[k] for k in STRICTER[6:]}}
        for name, target in targets(document)
        for step in target["stricter"]
    ]
    # One sentence for all goes below the table; a promise stands in its own row.
    said = list(dict.fromkeys(str(row["promise"]) for row in rows))
    together = len(said) == 1 and len(rows) > 1 and not any(row["aborts_nothing"] for row in rows)
    main = TableView(
        Data("cascade", RESULTS, rows),
        "Recall and savings",
        (
            *who(),
            target_head(),
            Head("Method", _method, number=False),
            Head("Recall", _recall, group="Test"),
            Head("Savings", _savings, group="Test"),
            Head("What is promised", _promise, number=False, varied=together),
            mode_head(),
        ),
        rows=pivot(rows, ["target"], "target"),
        notes=(
            "Recall: share of the successful test episodes that no gate aborts. Savings: share of "
            "the test episodes' whole cost. Both are of the first split.",
            *(f"Every row: {visible(words)}." for words in said if together),
        ),
    )
    steps = sorted({str(row["stricter"]) for row in strict}, key=float)
    dependent = any(not cell["one_rollout_per_task"] for cell in document["cells"])
    more = TableView(
        Data("cascade_stricter", STRICTER, strict),
        "What stricter targets would take",
        (
            *who(),
            target_head(),
            *(
                replace(at(step, _step), group="Independent successes, none lost, for target")
                for step in steps
            ),
            mode_head(),
        ),
        rows=pivot(strict, ["target"], "stricter"),
        notes=(
            "Below: how many of them are missing; and how many it takes at the number lost now.",
            *(
                ["Several rollouts of a task are counted here, so more are missing than it says."]
                if dependent
                else []
            ),
        ),
    )
    return Section(
        "results",
        "Deployed policies",
        "One policy per target. Only the sentence that says so is a promise, under the conditions "
        "it names; test figures are measurements.",
        (main, more) if strict else (main,),
    )


def gate_section(document: Document) -> Section:
    """Thresholds per gate and budget, what each gate means alone, and what closed gates need."""
    rows = []
    for name, cell in entries(document):
        found = cell["gates"]
        needs = {g["gate"]: g["needs"] for g in found["closed"]}
        rows += [
            {
                **name,
                "gate": r + 1,
                "successes": found["successes"][r],
                "budget": budget,
                "threshold": value,
                "needs": needs.get(r + 1),
            }
            for r, values in enumerate(found["thresholds"])
            for budget, value in zip(found["grid"], values, strict=True)
        ]
    grid = list(dict.fromkeys(str(r["budget"]) for r in rows))
    view = TableView(
        Data("cascade_thresholds", GATES, rows),
        "Threshold per gate and budget",
        (
            *who(),
            Head("Gate", whole("gate")),
            Head("Calibration successes", whole("successes")),
            *(
                replace(at(b, lambda r: tau(r["threshold"])), group="Threshold at budget")
                for b in grid
            ),
            Head("Opens with", _opens),
            mode_head(),
        ),
        rows=pivot(rows, ["gate"], "budget"),
        notes=(
            "An episode is aborted where its score exceeds the threshold; “none” aborts nothing.",
            *dict.fromkeys(visible(cell["gates"]["text"]) + "." for _, cell in entries(document)),
        ),
    )
    return Section(
        "gates", "Gates", "Thresholds of the first split, from calibration successes.", (view,)
    )


def sample_section(document: Document) -> Section:
    """Samples of the first draw, and the settings."""
    rows = [
        {**name, "sample": part, **size, "unlabelled": cell["episodes_without_outcome"]}
        for name, cell in entries(document)
        for part, size in cell["samples"].items()
        if size["episodes"]
    ]
    view = TableView(
        Data("cascade_samples", SAMPLES, rows),
        "Samples of the first split",
        (
            *who(),
            Head("Sample", text("sample"), number=False),
            Head("Tasks", whole("tasks")),
            Head("Episodes", whole("episodes")),
            Head("Successes", whole("successes")),
            Head("Left out: no outcome", whole("unlabelled")),
            mode_head(),
        ),
        rows=pivot(rows, ["sample"], "sample"),
    )
    search = document["search"] + ("" if document["searched"] else ": too large, not searched")
    return Section(
        "samples", "Samples and settings", "", (view, settings(document, ("search", search)))
    )


def settings(document: Document, *more: tuple[str, str]) -> Facts:
    """The settings, as the document has them."""
    items = tuple(
        (key.replace("_", " "), visible(", ".join(map(str, v)) if isinstance(v, list) else v))
        for key, v in document["settings"].items()
    )
    return Facts("Settings", (*items, *more))


def _method(row: Row) -> Cell | str:
    name = str(row["method"])
    return Cell(name, sub="aborts nothing") if row["aborts_nothing"] else name


def _recall(row: Row) -> Cell | str:
    shown = percent(row["recall"], NO_SUCCESS)
    of = f"{row['kept']:,} of {row['successes']:,}"
    return shown if isinstance(shown, Cell) else Cell(shown, sub=of)


def _savings(row: Row) -> Cell | str:
    shown = percent(row["savings"], NO_COST)
    of = f"{row['saved']:,} of {row['cost']:,}"
    return shown if isinstance(shown, Cell) else Cell(shown, sub=of)


def _promise(row: Row) -> Cell | str:
    words = visible(row["promise"])
    if row["aborts_nothing"] and row["reason"] and row["reason"] not in row["promise"]:
        words += f"; aborts nothing: {visible(row['reason'])}"
    return Cell(words, strong=bool(row["guaranteed"]))


def _step(row: Row) -> Cell | str:
    lack = f"{row['missing']:,} missing" if row["missing"] else "enough"
    same = f"{row['needs_same_lost']:,} at {row['lost']} lost"
    return Cell(f"{row['needs_none_lost']:,}", sub=f"{lack}\n{same}" if row["lost"] else lack)


def _opens(row: Row) -> Cell | str:
    if row["needs"] is None:
        return "open"
    return f"{row['needs']:,} successes"
