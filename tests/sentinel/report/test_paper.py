"""A reader of the paper finds every table and figure by its number, or why it is off."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sentinel import tables
from sentinel.report import audit, ladder, operating, paper, per_agent, results, screen, strict
from sentinel.report.blocks import Cell, Data
from sentinel.report.every_monitor import UNJUDGED
from sentinel.report.load import Monitor, Run, load
from sentinel.report.sections import build

NUMBERED = [f"Table {n}" for n in range(1, 10)]


def monitors(*names: str) -> list[Monitor]:
    """Monitors of some agents, with nothing in them."""
    return [Monitor("b", name, {}, {}) for name in names]


def rungs(run: Run) -> Data:
    """The ladder of a run."""
    return Data("ladder", ladder.COLUMNS, ladder.rows(run))


def test_agents_of_the_paper_keep_their_numbers() -> None:
    five = monitors("Phi-4-mini", "mine", "gpt-4o-mini", "other", "third", "fourth")
    assert per_agent.numbers(five) == [7, 3, 4, 5, 6, None]
    assert per_agent.numbers(monitors("a", "b")) == [3, 4]
    # The same agent on two benchmarks: one number each.
    assert per_agent.numbers(monitors("gpt-4o", "gpt-4o")) == [3, 4]


def test_every_number_leads_to_its_block(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    contents = re.search(r'<section id="paper">.*?</section>', html, re.DOTALL)
    assert contents is not None
    for name in NUMBERED:
        link = re.search(rf'<a href="#([^"]+)">{name}</a>', contents.group())
        assert link is not None, name
        heading = re.search(rf'id="{link.group(1)}"[^>]*>([^<]*)', html)
        assert heading is not None
        assert heading.group(1).startswith(f"{name} · ")
    assert "Figure 3 · steady" in html
    assert "Figure 4 · fabricator" in html
    assert "not run: sentinel compare-encoders" in contents.group()
    assert "not run: audit.seeds is 0" in contents.group()


def test_what_was_not_run_is_not_called_here(run_path: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run_path, tmp_path / "made")
    for name in ("audit", "feature_screen"):
        shutil.rmtree(copy / "tables" / name)
    run = load(copy)
    state = {row["anchor"]: row["state"] for row in paper.section(run).blocks[0].data.rows}
    for anchor in ("table-6", "audit", "knock-outs", "seed-variance"):
        assert state[anchor] == "not run: sentinel audit"
    assert "has not been run" in audit.section(run).lead
    assert build(run)  # the page is there all the same


def test_a_benchmark_without_unanswerable_tasks_is_off(run_path: Path) -> None:
    run = load(run_path)
    tasks = run.table("tasks")
    nothing = pa.nulls(tasks.num_rows, pa.bool_())
    place = tasks.column_names.index("answerable")
    unjudged = replace(
        run, tables={**run.tables, "tasks": tasks.set_column(place, "answerable", nothing)}
    )
    state = {row["anchor"]: row["state"] for row in paper.section(unjudged).blocks[0].data.rows}
    assert state["table-9"] == state["reweighting"] == state["exact-bar"] == UNJUDGED
    assert state["table-5"].startswith("here; off for clinic")


def test_the_exact_bar_is_the_difference_of_two_rungs(run_path: Path) -> None:
    data = rungs(load(run_path))
    view = operating.exact_bar(data)
    (head,) = [h for h in view.heads if h.title.endswith("1") and "exact" in h.group.lower()][:1]
    for row in view.rows or ():
        rs = {
            r["system"]: r["rs"]
            for r in data.rows
            if r["lam"] == "1" and r["agent"] == row["agent"]
        }
        cell = head.cell(row)
        assert isinstance(cell, Cell)
        assert cell.text == f"{rs['exact-bar'] - rs['full']:+.3f}".replace("-", "−")


def test_early_stops_have_a_row_per_agent(run_path: Path) -> None:
    run = load(run_path)
    view = results.savings(run, rungs(run)).blocks[1]
    assert view.title.startswith("Table 8")
    assert [row["agent"] for row in view.rows or ()] == ["steady", "fabricator"]


def test_strict_scoring_stands_beside_the_primary_label(run_path: Path) -> None:
    (section,) = strict.sections(load(run_path))
    view = section.blocks[0]
    rows = [(r["agent"], r["label"], r["system"]) for r in view.rows or ()]
    assert rows[:4] == [
        ("steady", "primary", "vanilla"),
        ("steady", "primary", "full"),
        ("steady", "primary", "early-exit"),
        ("steady", "strict-2022", "vanilla"),
    ]
    gains = [h for h in view.heads if h.group == "RS − always abstain"]
    evaluation = json.loads(
        (run_path / "monitor" / "clinic" / "steady" / "evaluation.json").read_text()
    )
    for label, rungs in (
        ("primary", evaluation["ladder"]),
        ("strict-2022", evaluation["rescored"]["strict-2022"]),
    ):
        row = next(
            r
            for r in view.rows or ()
            if (r["agent"], r["label"], r["system"]) == ("steady", label, "full")
        )
        rung = next(r for r in rungs if (r["system"], r["lam"]) == ("full", "1"))
        cell = gains[0].cell(row)
        assert isinstance(cell, Cell)
        gain = rung["intervals"]["rs_minus_abstain"]["point"]
        assert cell.text == f"{gain:+.2f}".replace("-", "−")


def test_the_survivor_matrix_says_off_and_counts(run_path: Path) -> None:
    run = load(run_path)
    rows = [
        {**r, "delta": None, "low": None, "survivor": None, "note": "off: missing in every episode"}
        if r["name"] == "bad_joins"
        else r
        for r in run.table("feature_screen").to_pylist()
    ]
    made = replace(
        run, tables={**run.tables, "feature_screen": tables.FEATURE_SCREEN.from_rows(rows)}
    )
    section = screen.section(made)
    assert section.lead.startswith("18 intervals, no correction")
    view = section.blocks[0]
    (head,) = [h for h in view.heads if h.title == "bad_joins"]
    for row in view.rows or ():
        cell = head.cell(row)
        assert isinstance(cell, Cell)
        assert (cell.text, cell.reason) == ("—", "off: missing in every episode")
    state = {row["anchor"]: row["state"] for row in paper.section(made).blocks[0].data.rows}
    assert state["table-6"] == "here; off: bad_joins of every agent"


@pytest.mark.parametrize("fault", ["duplicates", "shuffled-tfidf"])
def test_a_check_that_failed_is_said_first(run_path: Path, fault: str) -> None:
    run = load(run_path)
    rows = run.table("audit").to_pylist()
    broken = next(r for r in rows if r["check"] == fault)
    broken["passed"] = False
    made = replace(run, tables={**run.tables, "audit": tables.AUDIT.from_rows(rows)})
    assert f"FAILED: {fault} of {broken['agent']}" in audit.section(made).lead


def test_a_figure_has_a_number_for_every_mark(run_path: Path) -> None:
    section = per_agent.section(load(run_path))
    data = section.blocks[0].data
    assert isinstance(data, Data)
    assert {(r["agent"], r["panel"]) for r in data.rows} == {
        (agent, panel) for agent in ("steady", "fabricator") for panel in "abc"
    }
    assert all(block.svg.count("<svg") == 1 for block in section.blocks)
