"""Which monitor may read which run; what may not is one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_episodes import made_collection
from scored_runs import PLACE, config, copy, monitor, numbers, run_of, score

import jobs.calibrate
from cluster import files
from cluster.pool import open_cluster
from cluster.run_dir import RunDir


@pytest.fixture(scope="module")
def tfidf(tmp_path_factory: Any) -> Iterator[RunDir]:
    yield from run_of(tmp_path_factory.mktemp("tfidf"), {"kind": "tfidf"})


def changed(target: RunDir, what: str) -> list[str]:
    """Make a run, or a request, that the monitor was not made for."""
    if what == "weights":
        table = target.read("episodes", *PLACE)
        at = table.column_names.index("agent_hash")
        table = table.set_column(at, table.schema.field(at), [["new"] * table.num_rows])
        target.write_table("episodes", *PLACE, table, stage="collect", source="new")
    if what == "pools":
        files.write_json(target.root / "manifests" / "made.json", {"hash": "another"})
    if what == "settings":
        recorded = files.read_json(target.root / "config.json")
        assert recorded is not None
        recorded["benchmarks"][0]["name"] = "made2"
        files.write_json(target.root / "config.json", recorded)
        for name in ("tasks", "episodes", "turns"):
            folder = target.root / "tables" / name
            (folder / "benchmark=made").rename(folder / "benchmark=made2")
        return ["--benchmark", "made2"]
    if what == "agent":
        made_collection(target, ("steady", "other"))
        return ["--agent", "other"]
    return []


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("weights", "another config or weights of the agent"),
        ("pools", "another cut of the pools"),
        ("settings", "another benchmark (made)"),
        ("agent", "another agent (steady)"),
    ],
)
def test_a_monitor_of_something_else_wants_a_reason(
    tfidf: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, says: str
) -> None:
    target = copy(tfidf, tmp_path)
    asked = [monitor(tfidf), "--run-dir", target.root, *changed(target, what)]
    assert score(*asked) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not (target.root / "scored").exists()
    assert score(*asked, "--transfer", "to see") == 0
    (done,) = numbers(target)
    assert done["transfer"] == "to see"
    assert done["prefixes"] > 20


def test_a_prompt_that_changed_wants_a_reason(
    tfidf: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Collection recorded what the episodes depend on, in the monitor's run and in this one."""
    inputs = Path("parts") / "collect" / "agent=steady" / "made.inputs.json"
    for prompt in ("one", "another"):
        run_dir = copy(tfidf, tmp_path / prompt)
        files.write_json(run_dir.root / inputs, {"benchmark": prompt})
    first = RunDir(tmp_path / "one" / "runs" / "target")
    with open_cluster("debug", 1) as cluster:
        jobs.calibrate.run(config(kind="tfidf"), first, cluster)  # exports with that fingerprint
    assert score(monitor(first), "--run-dir", first.root) == 0
    assert score(monitor(first), "--run-dir", run_dir.root) == 2
    assert "another data, rules or prompt" in capsys.readouterr().err


def test_a_second_monitor_on_the_held_out_pool_wants_a_reason(
    tfidf: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, other = copy(tfidf, tmp_path), copy(tfidf, tmp_path / "refitted")
    for part in (other.root / "parts" / "calibrate").glob("*"):
        shutil.rmtree(part)
    settings = config(kind="tfidf").model_copy(
        update={"decide": config().decide.model_copy(update={"gate_budget": "0.3"})}
    )
    with open_cluster("debug", 1) as cluster:
        jobs.calibrate.run(settings, other, cluster)
    run = ["--run-dir", target.root]
    assert score(monitor(target), *run) == 0
    assert score(monitor(target), *run) == 0  # a replay
    assert score(monitor(other), *run) == 2
    assert "already evaluated with 1 other monitor(s)" in capsys.readouterr().err
    assert score(monitor(other), *run, "--pool", "calibration") == 0
    assert score(monitor(other), *run, "--again", "a larger budget") == 0
    (ledger,) = (tmp_path / "ledgers").glob("*.jsonl")
    reasons = [json.loads(line)["reason"] for line in ledger.read_text().splitlines()]
    assert reasons == [None, None, "a larger budget"]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("damaged", "was changed after it was written"),
        ("pickle", "could run code"),
        ("none", "is no monitor of text heads"),
        ("episodes", "no episodes of made/steady were collected"),
        ("run", "is no run directory"),
        ("unknown", "none of these 2 monitors is of any benchmark/other"),
        ("out", "is one table"),
        ("flush", "at least 1"),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    tfidf: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, says: str
) -> None:
    target = copy(tfidf, tmp_path)
    folder, root, more = monitor(target), target.root, []
    if what == "damaged":
        (folder / "policy.json").write_text("{}")
    elif what == "pickle":
        (folder / "x.pkl").write_bytes(b"")
    elif what == "none":
        folder = tmp_path
    elif what == "episodes":
        shutil.rmtree(root / "tables" / "episodes")
    elif what == "run":
        root = tmp_path / "nothing"
    elif what == "unknown":
        shutil.copytree(folder, tmp_path / "m" / "sentinel")
        folder, more = target.root, [tmp_path / "m", "--agent", "other"]
    elif what == "out":
        more = ["--out", tmp_path / "t.xlsx"]
    else:
        more = ["--flush-tokens", "0"]
    assert score(folder, *more, "--run-dir", root) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not (target.root / "scored").exists()
