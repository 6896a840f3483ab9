"""The shared encoder's AUROC stands beside the pair's, and only where it was fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sentinel.report import audit, shared_encoder
from sentinel.report.blocks import Cell
from sentinel.report.load import load


def test_the_last_measurement_of_each_head_is_shown(run_path: Path) -> None:
    run = load(run_path)
    assert shared_encoder.views(run) == ()
    where = {"stage": "heads", "event": "shared_encoder", "benchmark": "clinic"}
    measured = [
        {
            **where,
            "agent": agent,
            "head": head,
            "n": 1200,
            "auroc": a,
            "auroc_shared": b,
            "delta": d,
        }
        for agent, head, a, b, d in (
            ("fabricator", "answerability", None, None, None),
            ("steady", "answerability", 0.5, 0.6, 0.1),
            ("steady", "correctness", 0.75, 0.7, -0.05),
            ("steady", "answerability", 0.8, 0.81, 0.01),
        )
    ]
    run = replace(run, metrics=[*run.metrics, *measured])
    found = shared_encoder.rows(run)
    assert [(r["agent"], r["delta"]) for r in found] == [
        ("steady", 0.01),
        ("steady", -0.05),
        ("fabricator", None),
    ]
    (view,) = shared_encoder.views(run)
    shown = [block.title for block in audit.section(run).blocks]
    assert shown[-1] == view.title == "One shared encoder beside the pair"
    cells = [[head.cell(row) for head in view.heads] for row in found]
    assert cells[1][-4:] == ["1,200", "0.750", "0.700", "−0.050"]
    assert isinstance(cells[2][-1], Cell)
