"""The page of a cascade: complete, self-contained, inert, and no number that is not its own."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import made_cascade
import pytest
from made_run import HOSTILE

from sentinel.cascade.simulated import simulated_rows
from sentinel.report.cascade_page import render_cascade, render_sweep

Made = tuple[dict[str, Any], list[dict[str, Any]]]
SECTIONS = {
    *("results", "frontier", "recall", "budget", "alive", "margins", "cost", "simulated"),
    *("gates", "samples"),
}


class Tags(HTMLParser):
    """Elements and their attributes, in order; and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: Path, name: str) -> list[dict[str, str]]:
    with (page.parent / "report" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def text(page: Path) -> str:
    return " ".join(" ".join(Tags(page.read_text(encoding="utf-8")).words).split())


@pytest.fixture(scope="module")
def paper() -> Made:
    return made_cascade.paper()


@pytest.fixture(scope="module")
def paper_page(paper: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper") / "cascade.html"
    simulated = simulated_rows(["0.9"], 3, tasks=60)
    return render_cascade(*paper, out, simulated=simulated, title="A title")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile") / "x.html"
    return render_cascade(*made_cascade.hostile(HOSTILE), out, title=HOSTILE)


def test_every_section_and_every_file(paper_page: Path):
    html = paper_page.read_text(encoding="utf-8")
    tags = Tags(html).found
    assert {a["id"] for tag, a in tags if tag == "section"} == SECTIONS
    links = {a["href"] for tag, a in tags if tag == "a"}
    files = {href for href in links if href is not None and not href.startswith("#")}
    written = {f"report/{path.name}" for path in (paper_page.parent / "report").iterdir()}
    assert files == written
    assert "<title>A title</title>" in html
    assert not {tag for tag, _ in tags} & {"script", "iframe", "object", "embed", "img", "base"}
    assert "default-src 'none'" in html
    assert not re.search(r"@import|url\((?!#)", html)


def test_recall_and_savings_are_the_documents(paper: Made, paper_page: Path):
    document, _ = paper
    found = {
        (r["cell"], r["target"], r["allocation"]): r
        for r in read(paper_page, "cascade_allocations")
    }
    size = 0
    for cell in document["cells"]:
        for line in cell["seeds"]["summary"]:
            row = found[cell["cell"], line["target"], line["allocation"]]
            for key in ("recall_mean", "recall_sd", "savings_mean", "savings_sd"):
                assert float(row[key]) == line[key]
            assert (int(row["seeds"]), int(row["no_op"])) == (line["seeds"], line["no_op"])
            size += 1
    assert size == len(found)
    line = document["cells"][0]["seeds"]["summary"][0]
    words = text(paper_page)
    assert f"{100 * line['recall_mean']:.1f} % ± {100 * line['recall_sd']:.1f}" in words
    for row in read(paper_page, "cascade"):
        cell = next(c for c in document["cells"] if c["cell"] == row["cell"])
        target = next(t for t in cell["targets"] if t["target"] == row["target"])
        assert float(row["recall"]) == target["test"]["recall"]
        assert int(row["saved"]) == target["test"]["saved"]
        assert row["policy_hash"] == target["policy_hash"]


def test_budget_per_round_adds_up(paper: Made, paper_page: Path):
    document, _ = paper
    rows = read(paper_page, "cascade_gates")
    for cell in document["cells"]:
        for target in cell["targets"]:
            mine = [r for r in rows if (r["cell"], r["target"]) == (cell["cell"], target["target"])]
            test = target["test"]
            assert sum(int(r["saved"]) for r in mine) == test["saved"]
            assert sum(int(r["lost"]) for r in mine) == test["successes"] - test["kept"]
            assert sum(float(r["saved_share"]) for r in mine) == pytest.approx(test["savings"])
    alive = read(paper_page, "cascade_alive")
    assert [int(r["alive"]) for r in alive] == [n for c in document["cells"] for n in c["alive"]]


def test_the_margin_in_use_is_the_documents_own_policy(paper: Made, paper_page: Path):
    document, _ = paper
    rows = read(paper_page, "cascade_margins")
    assert len(rows) == 2 * 2 * len(made_cascade.MARGINS)
    for row in (r for r in rows if r["margin"] == "0.02"):
        cell = next(c for c in document["cells"] if c["cell"] == row["cell"])
        line = next(
            s
            for s in cell["seeds"]["summary"]
            if (s["target"], s["allocation"]) == (row["target"], "cascade")
        )
        assert float(row["recall_mean"]) == line["recall_mean"]
        assert float(row["savings_sd"]) == line["savings_sd"]
        below = sum(
            r["recall"] < float(row["target"])
            for r in cell["seeds"]["rows"]
            if (r["target"], r["allocation"]) == (row["target"], "cascade")
        )
        assert int(row["below"]) == below
    assert "promises nothing" in text(paper_page)


def test_paper_mode_says_so_everywhere(paper_page: Path):
    words = text(paper_page)
    assert "guaranteed" not in words
    assert "Nothing on this page is promised" in words
    html = paper_page.read_text(encoding="utf-8")
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
    assert len(captions) >= 9
    drawn = [c for c in captions if "splits whose" not in c and "of a gate is" not in c]
    assert all("ode paper" in c or "ode strict" in c for c in drawn)
    for name in ("cascade", "cascade_allocations", "cascade_gates", "cascade_margins"):
        assert {row["mode"] for row in read(paper_page, name)} == {"paper"}


@pytest.mark.parametrize("declared", [True, False])
def test_the_word_is_used_only_where_the_document_uses_it(tmp_path: Path, declared: bool):
    document, sweep = made_cascade.strict(declared)
    promise = document["cells"][0]["targets"][0]["guarantee"]
    assert promise["guaranteed"] is declared
    page = render_cascade(document, sweep, tmp_path / "x.html")
    words = text(page)
    assert words.count("guaranteed") == declared
    assert promise["text"] in words
    assert "1 of 1" in words
    assert ("under conditions named below" in words) is not declared
    (row,) = read(page, "cascade")
    assert row["guaranteed"] == str(declared)
    assert "margin alone" in words


def test_policies_that_abort_nothing_say_why(tmp_path: Path):
    document, sweep = made_cascade.few()
    page = render_cascade(document, sweep, tmp_path / "x.html")
    words = text(page)
    for target in document["cells"][0]["targets"]:
        assert target["aborts_nothing"]
        assert f"the policy aborts nothing: {target['reason']}" in words
        assert target["guarantee"]["text"] in words
    assert "guaranteed" not in words
    assert all(row["budget"] == "" for row in read(page, "cascade_gates"))
    assert {row["savings"] for row in read(page, "cascade")} == {"0.0"}


def test_without_successes_recall_is_a_dash_with_its_reason(tmp_path: Path):
    document, sweep = made_cascade.hopeless()
    page = render_cascade(document, sweep, tmp_path / "x.html")
    words = text(page)
    assert "no success among the test episodes, so no recall" in words
    assert "—" in words
    (row,) = read(page, "cascade")
    assert row["recall"] == ""
    assert {r["recall_mean"] for r in read(page, "cascade_allocations")} == {""}
    assert {r["recall_mean"] for r in read(page, "cascade_margins")} == {""}
    assert "nan" not in words.lower()


def test_a_sweep_has_the_same_means(paper: Made, paper_page: Path, tmp_path: Path):
    document, _ = paper
    found = {
        **{k: document[k] for k in ("version", "mode", "settings")},
        "cells": [
            {"cell": c["cell"], "scorer": c["scorer"], "seeds": 3, "summary": c["seeds"]["summary"]}
            for c in document["cells"]
        ],
        "missing": [HOSTILE],
    }
    page = render_sweep(found, tmp_path / "x.html")
    assert read(page, "cascade_allocations") == read(paper_page, "cascade_allocations")
    html = page.read_text(encoding="utf-8")
    assert not {tag for tag, _ in Tags(html).found} & {"script", "img"}
    assert "mean of 3 splits" in html
    assert "missing blocks" in html
    assert "guaranteed" not in html
    assert render_sweep({**found, "cells": []}, tmp_path / "none" / "x.html").is_file()


def test_hostile_names_are_text(hostile_page: Path):
    html = hostile_page.read_text(encoding="utf-8")
    assert not {tag for tag, _ in Tags(html).found} & {"script", "img"}
    assert "<!--" not in html
    assert "\u202e" not in html
    assert "9007199254740993" in html
    assert {r["cell"] for r in read(hostile_page, "cascade")} == {HOSTILE, "9007199254740993"}


def test_same_document_same_page(paper: Made, paper_page: Path, tmp_path: Path):
    simulated = simulated_rows(["0.9"], 3, tasks=60)
    again = render_cascade(*paper, tmp_path / "x.html", simulated=simulated, title="A title")
    assert again.read_bytes() == paper_page.read_bytes()


@pytest.mark.browser
@pytest.mark.skipif(chromium.find() is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("width", "dark", "bad"), [(1280, False, False), (500, True, True)])
def test_the_browser_is_quiet(
    paper_page: Path, hostile_page: Path, tmp_path: Path, width: int, dark: bool, bad: bool
):
    page = hostile_page if bad else paper_page
    visit = chromium.open_page(
        page,
        tmp_path / "profile",
        {
            "pwned": "typeof window.pwned",
            "scripts": "document.scripts.length",
            "empty": "[...document.querySelectorAll('svg.plot')]"
            ".filter(s => !s.getBBox().width).length",
            "figures": "document.querySelectorAll('svg.plot').length",
            "overflow": "document.documentElement.scrollWidth"
            " - document.documentElement.clientWidth",
        },
        width=width,
        dark=dark,
    )
    assert visit.requests == [page.as_uri()]
    assert visit.console == []
    assert visit.exceptions == []
    assert visit.values["pwned"] == "undefined"
    assert visit.values["scripts"] == 0
    assert visit.values["empty"] == 0
    assert visit.values["figures"] == (9 if bad else 11)
    assert visit.values["overflow"] <= 0
