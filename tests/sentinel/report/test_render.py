"""The page of a run: complete, self-contained, the same each time, and inert."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import made_run
import pytest
from made_run import HOSTILE

from sentinel.errors import UserError
from sentinel.report import looks
from sentinel.report.load import load
from sentinel.report.render import render_report

SECTIONS = {
    "paper",
    "scorers",
    "figures",
    "screen",
    "audit",
    "cross-agent",
    "ladder",
    "savings",
    "auroc",
    "reliability",
    "withhold",
    "risk-coverage",
    "reweighting",
    "rescored",
    "economics",
    "thresholds",
    "confidence",
    "intervals",
    "ledger",
    "counts",
    "stages",
    "provenance",
}


class Tags(HTMLParser):
    """Elements and their attributes, in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_section_and_every_file(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    tags = Tags(html).found
    assert {a["id"] for tag, a in tags if tag == "section"} == SECTIONS
    links = {a["href"] for tag, a in tags if tag == "a"}
    assert {f"#{name}" for name in SECTIONS} <= links
    anchors = {a["id"] for _, a in tags if a.get("id")}
    assert {href[1:] for href in links if href is not None and href.startswith("#")} <= anchors
    files = {href for href in links if href is not None and not href.startswith("#")}
    assert {f"report/{path.name}" for path in (page.parent / "report").iterdir()} == files
    assert "<title>A title</title>" in html
    assert html.count('class="plot"') == 8 + 2  # and the three panels of each agent


def test_nothing_is_fetched_and_nothing_runs(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    tags = Tags(html).found
    assert not {tag for tag, _ in tags} & {"script", "iframe", "object", "embed", "img", "base"}
    assert not [a for _, a in tags if any(name.startswith("on") for name in a)]
    assert not re.search(r"@import|url\((?!#)", html)
    assert "default-src 'none'" in html


def test_numbers_are_those_of_the_evaluation(run_path: Path, page: Path) -> None:
    for row in rows(page.parent / "report", "ladder"):
        path = run_path / "monitor" / row["benchmark"] / row["agent"] / "evaluation.json"
        evaluation = json.loads(path.read_text())
        found = [
            r
            for r in evaluation["ladder"]
            if (r["system"], r["lam"]) == (row["system"], row["lam"])
        ]
        assert len(found) == 1
        assert float(row["rs"]) == found[0]["rs"]
        low = found[0]["intervals"]["rs_minus_abstain"]["low"]
        assert row["rs_minus_abstain_low"] == ("" if low is None else repr(low))
        assert float(row["steps_saved"]) == found[0]["steps"]["share"]


def test_confidence_bins_are_those_of_the_calibration_pool(run_path: Path, page: Path) -> None:
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows(page.parent / "report", "confidence_bins"):
        found.setdefault((row["benchmark"], row["agent"]), []).append(int(row["n"]))
    for (benchmark, agent), sizes in found.items():
        policy = json.loads((run_path / "monitor" / benchmark / agent / "policy.json").read_text())
        assert (len(sizes), sum(sizes)) == (10, policy["counts"]["committed"])
    assert found


def test_step_economics_by_hand(run_path: Path, page: Path) -> None:
    import pyarrow.parquet as pq

    tasks = pq.read_table(next((run_path / "tables" / "tasks").rglob("*.parquet"))).to_pylist()
    train = {t["task_id"]: t["answerable"] for t in tasks if t["pool"] == "train"}
    for row in rows(page.parent / "report", "step_economics"):
        folder = run_path / "tables" / "episodes"
        part = next(p for p in folder.rglob("*.parquet") if row["agent"] in str(p))
        episodes = pq.read_table(part).to_pylist()
        for name, answerable, end in (
            ("fabrication", False, "answered"),
            ("correct_refusal", False, "abstained"),
        ):
            turns = [
                e["turns"]
                for e in episodes
                if train.get(e["task_id"]) is answerable and e["end"] == end
            ]
            assert int(row[f"{name}_n"]) == len(turns)
            assert float(row[name]) == pytest.approx(sum(turns) / len(turns))


def test_missing_outcomes_are_counted(page: Path) -> None:
    found = rows(page.parent / "report", "episodes")
    assert [row["agent"] for row in found] == ["steady", "fabricator"]  # the config's order
    assert all(int(row["missing"]) > 0 for row in found)
    for row in found:
        parts = [int(row[k]) for k in ("answered", "abstained", "cap", "missing")]
        assert sum(parts) == int(row["episodes"])


def test_same_run_same_page(run_path: Path, page: Path, tmp_path: Path) -> None:
    again = render_report(run_path, tmp_path / "page.html", title="A title")
    assert again.read_bytes() == page.read_bytes()
    assert not [p for p in tmp_path.rglob("*") if ".tmp" in p.name]


def test_looks_are_told_with_their_reasons(run_path: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledgers"
    ledger.mkdir()
    for path in (run_path.parent.parent / "ledgers").iterdir():
        lines = path.read_text().splitlines()
        again = json.loads(lines[0]) | {"monitor": "f" * 64, "reason": "a typo in the gate"}
        (ledger / path.name).write_text("\n".join([*lines, json.dumps(again), ""]))
    run = load(run_path)
    section = looks.ledger(run, ledger)
    assert section.lead.startswith("Up to 2 monitors have seen")
    reasons = [(row["nth"], row["reason"]) for row in looks.history(run, ledger)]
    assert sorted(set(reasons), key=str) == [(1, None), (2, "a typo in the gate")]
    # Without the ledger's files, what each evaluation noted down.
    noted = looks.history(run, tmp_path / "none")
    assert [row["nth"] for row in noted] == [1, 1]


def test_a_run_without_monitors_has_a_page(tmp_path: Path) -> None:
    agents = {"steady": made_run.MAKERS["steady"]}
    run = made_run.make_run(tmp_path, agents, questions=300, decided=False)
    html = render_report(run).read_text(encoding="utf-8")
    assert "No monitor has been fitted" in html
    assert 'id="counts"' in html
    assert 'id="ladder"' not in html


def test_an_undefined_number_is_a_dash_with_its_reason(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "no serial timed rerun" in html
    assert not re.search(r">(nan|inf|None|null)<", html)


def test_what_is_no_run_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        render_report(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        render_report(tmp_path)


def test_a_cut_table_is_named(run_path: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(run_path, tmp_path / "runs" / "cut")
    part = next((copy / "tables" / "episodes").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-5])
    with pytest.raises(UserError, match=re.escape(str(part))):
        render_report(copy)


def test_hostile_names_are_text(hostile_page: Path) -> None:
    text = hostile_page.read_text(encoding="utf-8")
    assert not {tag for tag, _ in Tags(text).found} & {"script", "img"}
    assert "<!--" not in text
    assert "\u202e" not in text
    assert "9007199254740993" in text
    names = {row["agent"] for row in rows(hostile_page.parent / "report", "ladder")}
    assert names == {HOSTILE, "_hidden"}  # the file has the name itself


def test_importing_the_report_loads_no_heavy_library() -> None:
    code = (
        "import sys, sentinel.report.render, sentinel.report.sections, sentinel.report.summary;"
        "print({'torch', 'ray', 'matplotlib', 'transformers', 'duckdb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
