"""One made-up run per session: real tables, real decisions, no model."""

from __future__ import annotations

from pathlib import Path

import made_run
import pytest
from made_run import HOSTILE, HOSTILE_BENCHMARK

from sentinel.report.render import render_report


@pytest.fixture(scope="session")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two agents, without its report."""
    agents = {name: made_run.MAKERS[name] for name in ("steady", "fabricator")}
    root = tmp_path_factory.mktemp("made")
    return made_run.make_run(root, agents, questions=400, resamples=100, audited=True)


@pytest.fixture(scope="session")
def page(run_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that run, its files in `report/` beside it."""
    return render_report(run_path, tmp_path_factory.mktemp("page") / "page.html", title="A title")


@pytest.fixture(scope="session")
def hostile_page(hostile_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the run with hostile names."""
    return render_report(hostile_path, tmp_path_factory.mktemp("hostile") / "x.html", title=HOSTILE)


@pytest.fixture(scope="session")
def hostile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose benchmark and agents have names that attack a page."""
    agents = {HOSTILE: made_run.MAKERS["steady"], "_hidden": made_run.MAKERS["fabricator"]}
    return made_run.make_run(
        tmp_path_factory.mktemp("hostile"),
        agents,
        questions=300,
        resamples=50,
        benchmark=HOSTILE_BENCHMARK,
        decide={"lambdas": [1.0]},
    )
