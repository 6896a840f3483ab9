"""`sentinel cascade` and `sentinel plan-certificate` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import small_round_scores

from jobs.__main__ import main
from sentinel.cascade import CascadeConfig, CascadePolicy, cascade
from sentinel.user_tables import dumps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    pq.write_table(small_round_scores.table(tasks=300), path / "plain.parquet")
    pq.write_table(small_round_scores.table(tasks=420, pools=True), path / "pools.parquet")
    pa.csv.write_csv(small_round_scores.table(tasks=420, pools=True), path / "pools.csv")
    pq.write_table(small_round_scores.table(tasks=40, rollouts=1), path / "few.parquet")
    return path


def test_json_equals_the_direct_call(folder: Path, capsys: pytest.CaptureFixture[str]):
    direct = dumps(
        cascade(pq.read_table(folder / "pools.parquet"), CascadeConfig.of(["0.85"], gates=4))
    )
    for name in ("pools.parquet", "pools.csv"):
        assert (
            main(["cascade", str(folder / name), "--target", "0.85", "--gates", "4", "--json"]) == 0
        )
        assert capsys.readouterr().out == direct


def test_terminal_tables(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["cascade", str(folder / "pools.parquet"), "--target", "0.85", "0.9"]) == 0
    out = capsys.readouterr().out
    assert "mode strict" in out
    assert "guaranteed: with confidence 97.5 %" in out
    assert "46,656 candidates, 1.5 MB" in out
    assert main(["cascade", str(folder / "plain.parquet"), "--mode", "paper", "--seeds", "3"]) == 0
    out = capsys.readouterr().out
    assert "mode paper" in out
    assert "guaranteed" not in out
    assert "over 3 seeds" in out
    assert main(["cascade", str(folder / "few.parquet")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the policy aborts nothing" in out
    assert "needs 59 independent successes" in out


def test_export_and_out(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    monitor, out = tmp_path / "monitor.json", tmp_path / "found.json"
    table = str(folder / "pools.parquet")
    arguments = ["cascade", table, "--target", "0.85", "--export", str(monitor), "--out", str(out)]
    assert main(arguments) == 0
    policy = CascadePolicy.from_json(monitor.read_text())
    assert policy.guaranteed
    found = json.loads(out.read_text())
    assert found["cells"][0]["targets"][0]["policy_hash"] == policy.hash()
    capsys.readouterr()
    assert main([*arguments, "--mode", "paper"]) == 2
    assert "paper mode exports no monitor" in capsys.readouterr().err
    assert main(["cascade", table, "--target", "0.8", "0.9", "--export", str(monitor)]) == 2
    assert "2 policies" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.parquet"], "no file"),
        (["notes.txt"], "neither .parquet nor .csv"),
        (["plain.parquet", "--target", "1"], "target 1 lies outside"),
        (["plain.parquet", "--grid", "0.9", "0.9"], "not distinct"),
        (["plain.parquet", "--mode", "paper", "--method", "certificate"], "paper mode"),
        (
            ["plain.parquet", "--gates", "12", "--mode", "paper"],
            "2,176,782,336 candidates, 69.7 GB",
        ),
        (["bad.csv"], "missing columns: task_id, group, cost, cost_total"),
        (["labels.csv"], "cannot be read"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    (folder / "bad.csv").write_text("episode_id,round,rounds_total,score,success\ne,1,1,0.5,true\n")
    (folder / "labels.csv").write_text("episode_id,success\ne,maybe\n")
    assert main(["cascade", str(folder / arguments[0]), *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_plan_certificate(capsys: pytest.CaptureFixture[str]):
    assert main(["plan-certificate", "--json", "--successes", "114"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["lost"]["0"] for row in found["targets"]] == [29, 59, 149, 299]
    assert round(found["certifiable"], 3) == 0.974
    assert main(["plan-certificate", "--target", "0.95", "--lost", "0", "5", "--shared", "2"]) == 0
    out = capsys.readouterr().out
    assert "5 lost" in out
    assert "share" in out
    for bad in (["--target", "2"], ["--successes", "0"], ["--power", "1"], ["--lost", "-3"]):
        assert main(["plan-certificate", *bad]) == 2


def test_thresholds_of_an_earlier_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    table, file = str(folder / "pools.parquet"), tmp_path / "gates.json"
    assert main(["cascade", table, "--target", "0.85", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["cells"][0]
    file.write_text(json.dumps(first["gates"]))
    arguments = ["cascade", table, "--target", "0.85", "--json", "--thresholds", str(file)]
    assert main(arguments) == 0
    again = json.loads(capsys.readouterr().out)["cells"][0]
    assert again["gates"]["kind"] == "given"
    (a,), (b,) = first["targets"], again["targets"]
    assert a["test"] == b["test"]
    assert (a["guarantee"]["guaranteed"], b["guarantee"]["guaranteed"]) == (True, False)
    assert b["guarantee"]["text"].startswith("if the thresholds were made without")
    for text, says in (
        ('{"grid": ["0.9", "1"], "thresholds": [[2, 1]]}', "thresholds of gate 1 fall"),
        ('{"grid": ["1", "0.9"], "thresholds": [[1, 2]]}', "does not ascend"),
        ('{"grid": ["0.9", "1"]}', "cannot be read"),
        ("[", "cannot be read"),
    ):
        file.write_text(text)
        assert main(arguments) == 2
        assert says in capsys.readouterr().err
    file.unlink()
    assert main(arguments) == 2


def test_report_is_written_beside_its_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "page"
    table = str(folder / "plain.parquet")
    arguments = ["cascade", table, "--mode", "paper", "--seeds", "2", "--gates", "3", "--json"]
    assert main([*arguments, "--report", str(out), "--simulate", "2"]) == 0
    found = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == found  # the page changes nothing that is printed
    html = (out / "cascade.html").read_text(encoding="utf-8")
    assert "Abort cascade: plain.parquet" in html
    assert "2 draws" in html
    assert (out / "report" / "cascade_margins.csv").is_file()
    summary = json.loads(found)["cells"][0]["seeds"]["summary"]
    assert f"{100 * summary[0]['recall_mean']:.1f} %" in html
    assert main([*arguments, "--report", str(out), "--simulate", "-1"]) == 2
