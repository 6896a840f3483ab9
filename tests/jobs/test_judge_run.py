"""A judge within a whole run: downstream stages, the report, the audit by two people."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from api_server import serve
from judging import config, judgements, labelled, labels, verdict

from cluster.run_dir import RunDir
from jobs.__main__ import main
from jobs.config import RunConfig
from jobs.label import labels_hash
from jobs.stages import run_stages

SMALL = {"bootstrap": {"resamples": 20}, "decide": {"lambdas": [1]}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))


def page(run_dir: RunDir) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", run_dir.report_path.read_text()).split())


def fill(path: Path, wrong: int = 0) -> None:
    """A rater that says what the judge says, but for the first `wrong` cases."""
    rows = list(csv.reader(io.StringIO(path.read_text())))
    for number, row in enumerate(rows[1:]):
        patient = int(re.findall(r"patient (\d+)", row[1])[0])
        row[-1] = str(int((patient % 3 == 0) != (number < wrong)))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.slow
def test_a_judge_as_the_primary_label_decides_everything_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(verdict) as server:
        settings = config(server.url, ("steady",), **SMALL)
        run_dir = labelled(tmp_path / "runs" / "r", settings)
        stages = ("judge", "heads", "calibrate", "bootstrap", "report")
        assert run_stages(settings, run_dir.root, stages) == 0
    semantic, strict = (labels(run_dir, name) for name in (settings.label, "strict-2022"))
    found = {r["episode_id"]: r["correct"] for r in run_dir.read("prefix_scores").to_pylist()}
    judged = {e for e in found if semantic[e]["source"] in ("match", "judge")}
    assert {e: found[e] for e in judged} == {e: semantic[e]["correct"] for e in judged}
    assert {e: found[e] for e in judged} != {e: strict[e]["correct"] for e in judged}
    evaluation = run_dir.root / "monitor" / "made" / "steady" / "evaluation.json"
    rescored = json.loads(evaluation.read_text())["rescored"]
    assert set(rescored) == {"strict-2022", "strict-2024", "typed"}, "scored by the others too"
    text = page(run_dir)
    assert f"Correct means: {settings.label}, semantic" in text
    assert "EHRSQL evaluate.py: first 100 rows, str(row), sorted (version 1)" in text
    assert "have not been audited by people" in text

    root = str(run_dir.root)
    capsys.readouterr()
    assert main(["judge-audit", "export", root, "--cases", "12"]) == 0
    sheets = [run_dir.root / "judge" / "audit" / f"rater-{i}.csv" for i in (1, 2)]
    assert sheets[0].read_bytes() == sheets[1].read_bytes()
    assert str(sheets[0]) in capsys.readouterr().out
    judged = {r["case"]: r for r in judgements(run_dir)}
    for row in csv.DictReader(io.StringIO(sheets[0].read_text())):
        assert any(row["question"] in r["shown"] for r in judged.values())
    again = ["judge-audit", "import", root, *map(str, sheets)]
    assert main(again) == 2
    assert "rater-1.csv: case-" in capsys.readouterr().err
    assert main(["judge-audit", "export", root]) == 2, "a filled sheet is not written over"
    for sheet, wrong in zip(sheets, (2, 3), strict=True):
        fill(sheet, wrong)
    assert main(again) == 0
    told = capsys.readouterr().out
    assert "two raters on 12 cases" in told
    assert "1 disputed" in told
    assert "agrees on 9 of 11 undisputed cases" in told
    kept = json.loads((run_dir.root / "judge" / "agreement.json").read_text())
    assert kept["label"] == settings.label
    assert sum(kept["confusion"].values()) == 11
    assert run_stages(settings, run_dir.root, ("report",)) == 0
    assert "9 of 11: 0.818 [0.523, 0.949] (Wilson, 95 %)" in page(run_dir)
    assert main(["judge-audit", "import", root, str(sheets[0]), str(sheets[0])]) == 2
    assert main(["judge-audit", "export", str(tmp_path)]) == 2


@pytest.mark.slow
def test_a_judge_added_to_a_finished_run_changes_nothing_of_it(tmp_path: Path) -> None:
    with serve(verdict) as server:
        typed = config(server.url, ("steady",), label="typed", **SMALL)
        before = RunConfig.from_mapping(typed.model_dump(mode="json") | {"judge": None})
        run_dir = labelled(tmp_path / "runs" / "r", before)
        assert run_stages(before, run_dir.root, ("heads", "calibrate", "bootstrap")) == 0
        old = labels_hash(run_dir, "made", "steady", "typed")
        assert old == run_dir.table_hash("labels", "made", "steady")
        parts = {
            p: p.stat().st_mtime_ns for p in run_dir.parts("heads", "made", "steady").glob("*")
        }

        stages = ("label", "judge", "heads", "calibrate", "bootstrap", "report")
        assert run_stages(typed, run_dir.root, stages) == 0
    assert labels_hash(run_dir, "made", "steady", "typed") == old
    assert {p: p.stat().st_mtime_ns for p in parts} == parts
    evaluation = run_dir.root / "monitor" / "made" / "steady" / "evaluation.json"
    assert typed.judge is not None
    assert typed.judge.label in json.loads(evaluation.read_text())["rescored"]
    text = page(run_dir)
    assert "Correct means: typed, typed equivalence" in text
    assert "The judge" in text


def test_a_run_without_a_judge_calls_nothing_semantic(tmp_path: Path) -> None:
    settings = config("http://127.0.0.1:9/v1", ("steady",), label="typed")
    none = RunConfig.from_mapping(settings.model_dump(mode="json") | {"judge": None})
    assert "judge" not in none.stages
    run_dir = labelled(tmp_path / "runs" / "r", none)
    assert run_stages(none, run_dir.root, ("report",)) == 0
    text = page(run_dir)
    assert "semantic" not in text.lower()
    assert "typed equivalence 1: values by type" in text
    assert main(["judge-audit", "export", str(run_dir.root)]) == 2
