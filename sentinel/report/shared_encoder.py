"""The shared-encoder variant on the page: its AUROC beside the pair's, from metrics.jsonl."""

from __future__ import annotations

from sentinel.report.blocks import Data, Head, Row, TableView, count, number, text
from sentinel.report.load import Run
from sentinel.report.results import first_of_each, who

COLUMNS = ("benchmark", "agent", "head", "n", "auroc", "auroc_shared", "delta")


def rows(run: Run) -> list[Row]:
    """The last measurement of each benchmark, agent and head, in the order of the config."""
    found = {
        (m["benchmark"], m["agent"], m["head"]): {name: m.get(name) for name in COLUMNS}
        for m in run.metrics
        if m.get("event") == "shared_encoder" and m.get("stage") == "heads"
    }
    return sorted(found.values(), key=lambda r: run.place(r["benchmark"], r["agent"]))


def views(run: Run) -> tuple[TableView, ...]:
    """One table; none for a run without the variant."""
    found = rows(run)
    if not found:
        return ()
    return (
        TableView(
            Data("shared_encoder", COLUMNS, found),
            "One shared encoder beside the pair",
            (
                *who(blank=True),
                Head("Head", text("head"), number=False),
                Head("Episodes", lambda r: count(r["n"])),
                Head("AUROC, two encoders", lambda r: number(r["auroc"], "one class")),
                Head("AUROC, shared", lambda r: number(r["auroc_shared"], "one class")),
                Head("Difference", lambda r: number(r["delta"], "one class")),
            ),
            rows=first_of_each(found),
            anchor="shared-encoder",
            notes=(
                "Train pool, out-of-fold, t = T. Every other figure of this page is the pair's: "
                "the shared encoder's scores lie in a table of their own (shared_scores).",
            ),
        ),
    )
