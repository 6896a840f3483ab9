"""The paper's numbers beside a run's own: only for the same environment and model, never mixed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import made_cascade
import pyarrow as pa
import pytest
import small_round_scores

from jobs.config import RunConfig
from sentinel import tables
from sentinel.report import paper_cells
from sentinel.report.load import WANTED, Run
from sentinel.report.load_cascade import Cascade
from sentinel.report.render import to_html

CELLS = sorted((Path(__file__).resolve().parents[3] / "configs" / "cells").glob("*.yaml"))
AGENTS = [
    {"name": "big", "model": "Qwen/Qwen2.5-7B-Instruct"},
    {"name": "own", "model": "nano:craft-mason"},
]


def made(kind: str, agents: list[dict[str, Any]] = AGENTS, agent: str = "big") -> Run:
    table = pa.concat_tables(
        made_cascade.named(small_round_scores.table(1, 120), f"w/{agent}", scorer)
        for scorer in ("stacking", "surface")
    )
    document, _ = made_cascade.make(table, ["0.9", "0.95"], "paper", seeds=3)
    row = {
        "benchmark": "w", "agent": agent, "statistic": "failure_auroc", "system": "probe",
        "lam": -1.0, "stratum": "paper r=1", "point": 0.75, "low": 0.7, "high": 0.8, "n": 50,
        "clusters": 20, "resamples": 100, "dropped": 0, "note": None,
    }  # fmt: skip
    intervals = tables.INTERVALS.from_rows([row]).select(list(WANTED["intervals"]))
    config = {"benchmarks": [{"name": "w", "kind": kind}], "agents": agents}
    found = [Cascade("w", agent, {"paper": document}, {})]
    return Run(Path(), config, {}, [], {"intervals": intervals}, [], found)


def test_the_committed_numbers_are_those_that_the_text_states() -> None:
    numbers = paper_cells.document()["numbers"]
    headline = {
        (n["environment"], n["model"].split("-")[0]): n["value"]
        for n in numbers
        if (n["quantity"], n["target"], n["allocation"]) == ("savings", "0.9", "cascade")
    }
    assert headline == {
        ("textcraft", "Qwen2.5"): 0.602,
        ("webshop", "Qwen3"): 0.549,
        ("webshop", "Llama"): 0.247,
    }
    assert all(n["source"] and 0 < n["value"] < 1 for n in numbers)
    keys = [tuple(v for k, v in n.items() if k not in ("value", "high")) for n in numbers]
    assert len(set(keys)) == len(keys)


def test_both_stand_side_by_side_in_columns_of_their_own() -> None:
    run = made("textcraft")
    rows = paper_cells.rows(run)
    at = {(r["quantity"], r["scorer"], r["allocation"], r["target"]): r for r in rows}
    cell = at["savings", "stacking", "cascade", "0.9"]
    assert cell["paper"] == 0.602
    summary = run.cascades[0].documents["paper"]["cells"][0]["seeds"]["summary"]
    ours = next(r for r in summary if r["allocation"] == "cascade" and float(r["target"]) == 0.9)
    assert (cell["run"], cell["run_sd"], cell["run_seeds"]) == (
        ours["savings_mean"], ours["savings_sd"], 3,
    )  # fmt: skip
    assert cell["run"] != cell["paper"]
    # a number that the run lacks stays empty: the paper's is never put in its place
    lacking = at["savings", "probe", "cascade", "0.95"]
    assert (lacking["paper"], lacking["run"]) == (0.422, None)
    assert lacking["run_note"] == "this run has not measured it"
    assert at["auroc", "probe", None, None]["run"] == 0.75
    section = paper_cells.section(run)
    assert section is not None
    (table,) = section.blocks
    assert {g for g, _ in table.groups if g} == {"As the paper states it", "This run"}
    page = to_html([section], title="t")
    assert "60.2 %" in page
    assert "none of its numbers enters one of this run" in page
    lines = list(csv.DictReader(table.data.to_csv().splitlines()))
    assert lines[0].keys() >= {"paper", "run"}


def test_other_worlds_and_other_models_have_no_such_section() -> None:
    assert paper_cells.section(made("craft")) is None
    assert paper_cells.section(made("textcraft", agent="own")) is None
    assert (
        paper_cells.section(made("textcraft", [{"name": "big", "model": "x/Qwen2.5-14B"}])) is None
    )
    assert paper_cells.section(made("webshop")) is None  # the text states none of that cell


@pytest.mark.parametrize("path", CELLS, ids=lambda p: p.stem)
def test_the_cells_configs_are_complete(path: Path) -> None:
    config = RunConfig.from_file(path)
    (benchmark,) = config.benchmarks
    assert benchmark.kind == path.stem
    models = {a.model.rpartition("/")[2] for a in config.agents}
    stated = {
        n["model"] for n in paper_cells.document()["numbers"] if n["environment"] == path.stem
    }
    assert stated <= models
    assert config.methods == {"cascade"}
    assert (config.cascade.gates, config.cascade.seeds, config.cascade.main) == (6, 20, "stacking")
    if path.stem == "alfworld":
        assert benchmark.mapping()["n_tasks"] == 120
    else:
        assert len(models) == 3
