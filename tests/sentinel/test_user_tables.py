"""Tables that users bring: text stays text, and every fault is named at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentinel.errors import UserError
from sentinel.tables import ROUND_SCORES, ROUND_SCORES_OPTIONAL
from sentinel.user_tables import dumps, read, typed


def test_csv_keeps_leading_zeros_and_reads_nulls(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("episode_id,task_id,round,score,success\n007,01,1,NaN,True\n008,01,2,0.5,\n")
    table = read(path, ROUND_SCORES)
    assert table.column("episode_id").to_pylist() == ["007", "008"]
    assert table.column("score").to_pylist() == [None, 0.5]
    assert table.column("success").to_pylist() == [True, None]


def test_files_that_cannot_be_read(tmp_path: Path):
    cut = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"a": [1]}), cut)
    cut.write_bytes(cut.read_bytes()[:-5])
    (tmp_path / "t.json").write_text("{}")
    for path in (cut, tmp_path / "t.json", tmp_path / "none.csv", tmp_path):
        with pytest.raises(UserError):
            read(path, ROUND_SCORES)


def test_all_faults_at_once():
    table = pa.table({"episode_id": [1], "score": ["x"], "round": pa.array([None], pa.int64())})
    _, faults = typed(table.append_column("junk", [[1]]), ROUND_SCORES, ROUND_SCORES_OPTIONAL)
    text = "; ".join(faults)
    assert "missing columns: task_id, group, rounds_total, cost, cost_total, success" in text
    assert "unknown columns: junk" in text
    assert "episode_id cannot be read as string" in text
    assert "score cannot be read as double" in text
    assert "round has 1 nulls" in text


def test_one_form_of_json():
    assert dumps({"b": 1, "a": [None]}) == '{\n "a": [\n  null\n ],\n "b": 1\n}\n'
    with pytest.raises(ValueError):
        dumps(float("nan"))
