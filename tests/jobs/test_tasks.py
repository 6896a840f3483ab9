"""`sentinel tasks`: every task once, with group, pool and fold."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

from jobs import __main__ as cli
from jobs.config import RunConfig
from jobs.tasks import SUFFIXES, opened, summary, task_table, write

RAW = {
    "name": "small",
    "benchmarks": [{"name": "clinic", "n_questions": 600}],
    "agents": [{"name": "a", "engine": "transformers", "model": "m"}],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        config = RunConfig.from_mapping(RAW)
        with opened(config.benchmarks[0]) as benchmark:
            return task_table(config, benchmark)


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(RAW))
    return path


def test_a_group_is_in_one_pool_and_one_fold(table):
    places = defaultdict(set)
    for row in table.to_pylist():
        if row["pool"] != "agent":
            places[row["group"]].add((row["pool"], row["fold"]))
    assert all(len(found) == 1 for found in places.values())


def test_only_train_tasks_have_a_fold(table):
    rows = table.to_pylist()
    assert {r["pool"] for r in rows if r["fold"] is not None} == {"train"}
    assert {r["fold"] for r in rows if r["pool"] == "train"} == set(range(5))


def test_the_table_is_the_same_again(table, tmp_path, monkeypatch):
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path))
    config = RunConfig.from_mapping(RAW)
    with opened(config.benchmarks[0]) as benchmark:
        assert task_table(config, benchmark).equals(table)


def test_the_summary_counts_every_task(table):
    counted = sum(int(line.split()[2]) for line in summary(table)[1:])
    assert counted == table.num_rows


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_each_form_holds_every_row(table, tmp_path, suffix):
    out = tmp_path / "new folder" / f"tasks{suffix}"
    write(table, out)
    if suffix == ".parquet":
        rows = pyarrow.parquet.read_table(out).num_rows
    elif suffix == ".csv":
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        rows = pyarrow.csv.read_csv(out, parse_options=options).num_rows
    else:
        rows = len([json.loads(x) for x in out.read_text().split("\n") if x])
    assert rows == table.num_rows
    assert [p.name for p in out.parent.iterdir()] == [out.name]


def test_the_command_writes_or_previews(config_file, tmp_path, capsys):
    assert cli.main(["tasks", str(config_file)]) == 0
    assert "--out tasks.parquet" in capsys.readouterr().out
    out = tmp_path / "tasks.jsonl"
    argv = ["tasks", str(config_file), "collect.limit=300", "--out", str(out)]
    assert cli.main(argv) == 0
    assert out.read_text().count("\n") == 300


def test_an_unknown_form_is_refused_before_any_work(capsys):
    assert cli.main(["tasks", "none.yaml", "--out", "tasks.xlsx"]) == 2
    assert ".parquet, .csv, .jsonl" in capsys.readouterr().err
