from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cluster.run_dir import RunDir
from sentinel import tables
from sentinel.errors import UserError

WHERE = {"benchmark": "clinic", "agent": "steady"}


def labels(*ids: str) -> pa.Table:
    rows = [
        {**WHERE, "episode_id": i, "label": "typed", "correct": True, "source": "match",
         "version": "1", "error": None}
        for i in ids
    ]  # fmt: skip
    return tables.LABELS.from_rows(rows)


def commit(run: RunDir, item: str, *ids: str, input_hash: str = "h") -> None:
    run.commit("label", "clinic", "steady", item, {"labels": labels(*ids)}, input_hash)


def is_done(run: RunDir, item: str, input_hash: str = "h") -> bool:
    return run.is_done("label", "clinic", "steady", item, input_hash)


def test_commit_compact_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "r")
    run.prepare({"name": "r"})
    assert not is_done(run, "a")
    commit(run, "b", "e3", "e2")
    commit(run, "a", "e1")
    assert is_done(run, "a")
    run.compact("label", "clinic", "steady", ["labels"])
    path = run.root / "tables/labels/benchmark=clinic/agent=steady/part.parquet"
    assert path.exists()
    assert run.read("labels")["episode_id"].to_pylist() == ["e1", "e2", "e3"]
    assert run.read("labels", "clinic", "steady").num_rows == 3
    before = path.stat().st_mtime_ns
    run.compact("label", "clinic", "steady", ["labels"])
    assert path.stat().st_mtime_ns == before, "nothing new, nothing written"
    commit(run, "c", "e0")
    run.compact("label", "clinic", "steady", ["labels"])
    assert run.read("labels")["episode_id"].to_pylist() == ["e0", "e1", "e2", "e3"]


def test_parts_in_key_order_are_compacted_one_at_a_time(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e2", "e1")
    commit(run, "b", "e4", "e3")
    run.compact("label", "clinic", "steady", ["labels"], in_order=True)
    assert run.read("labels")["episode_id"].to_pylist() == ["e1", "e2", "e3", "e4"]
    path = run.table_path("labels", "clinic", "steady")
    before = path.stat().st_mtime_ns
    run.compact("label", "clinic", "steady", ["labels"], in_order=True)
    assert path.stat().st_mtime_ns == before, "nothing new, nothing written"
    commit(run, "c", "e4", "e5")
    with pytest.raises(tables.TableError, match=r"out of order at .*e4"):
        run.compact("label", "clinic", "steady", ["labels"], in_order=True)
    assert run.read("labels").num_rows == 4, "the table there was is kept"
    with pytest.raises(UserError, match="no part of table labels"):
        run.compact("heads", "clinic", "steady", ["labels"], in_order=True)


def test_changed_inputs_are_refused_with_the_ways_out(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e1")
    with pytest.raises(UserError) as caught:
        is_done(run, "a", "other")
    text = str(caught.value)
    assert "name=NEW" in text
    folder = run.parts("label", "clinic", "steady")
    assert f"rm -r '{folder}'" in text
    assert folder.is_dir()


def test_a_cut_part_is_done_again_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e1")
    part = run.part_path("label", "clinic", "steady", "a", "labels")
    part.write_bytes(part.read_bytes()[:-5])
    assert not is_done(run, "a")
    assert str(part) in caplog.text
    assert '"corrupt_part"' in run.metrics_path.read_text()
    with pytest.raises(UserError, match="corrupt"):
        list(run.read_parts("label", "clinic", "steady", "labels"))
    commit(run, "a", "e1")
    assert is_done(run, "a")


def test_a_cut_table_is_a_user_error_and_compaction_mends_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e1")
    run.compact("label", "clinic", "steady", ["labels"])
    path = run.table_path("labels", "clinic", "steady")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"part\.parquet is corrupt"):
        run.read("labels")
    run.compact("label", "clinic", "steady", ["labels"])
    assert run.read("labels").num_rows == 1


def test_a_damaged_marker_means_not_done(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e1")
    marker = run.marker_path("label", "clinic", "steady", "a")
    marker.write_text(marker.read_text()[:-9])
    assert not is_done(run, "a")


def test_repeated_keys_and_wrong_columns_are_refused(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e1")
    commit(run, "b", "e1")
    with pytest.raises(tables.TableError, match="repeated keys"):
        run.compact("label", "clinic", "steady", ["labels"])
    with pytest.raises(tables.TableError, match="missing columns"):
        run.commit(
            "label", "clinic", "steady", "c", {"labels": labels("e").drop_columns("error")}, "h"
        )
    assert not run.marker_path("label", "clinic", "steady", "c").exists()


@pytest.mark.parametrize("name", ["a b", "a/b", "_x", ".x", "n" * 300, "é/_", "c=d", "s3://x"])
def test_awkward_names_of_items(tmp_path: Path, name: str) -> None:
    run = RunDir(tmp_path / "r with space")
    table = labels("e1")
    run.commit("label", name, name, name, {"labels": table}, "h")
    assert run.is_done("label", name, name, name, "h")
    run.compact("label", name, name, ["labels"])
    assert run.read("labels", name, name).num_rows == 1
    assert run.items("label", name, name) == [name]


def test_a_table_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table labels of clinic"):
        RunDir(tmp_path / "r").read("labels", "clinic")


def test_a_table_without_agent_belongs_to_all(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    row = {"benchmark": "clinic", "task_id": "007", "group": "01", "pool": "train", "fold": 0,
           "text": "?", "answerable": True, "gold": None, "meta": "{}"}  # fmt: skip
    table = tables.TASKS.from_rows([row])
    run.write_table("tasks", "clinic", None, table, stage="collect", source="s")
    assert run.read("tasks", "clinic", "steady")["task_id"].to_pylist() == ["007"]
    assert run.has_table("tasks", "clinic", None, "s")
    assert not run.has_table("tasks", "clinic", None, "t")


def test_table_hash_ignores_volatile_columns(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    commit(run, "a", "e1", "e2")
    run.compact("label", "clinic", "steady", ["labels"])
    first = run.table_hash("labels", "clinic", "steady")
    again = RunDir(tmp_path / "r2")
    commit(again, "x", "e2")
    commit(again, "y", "e1")
    again.compact("label", "clinic", "steady", ["labels"])
    assert again.table_hash("labels", "clinic", "steady") == first
    commit(again, "z", "e3")
    again.compact("label", "clinic", "steady", ["labels"])
    assert again.table_hash("labels", "clinic", "steady") != first


def test_metrics_are_lines_of_strict_json(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    run.metric("label", seconds=1.5, note="a\nb")
    with run.timed("heads"):
        pass
    lines = [json.loads(x) for x in run.metrics_path.read_text().split("\n")[:-1]]
    assert [x["stage"] for x in lines] == ["label", "heads"]
    assert lines[1]["outcome"] == "ok"
    with pytest.raises(ValueError, match="Out of range"):
        run.metric("label", bad=float("inf"))


WRITER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
import test_run_dir as t

boundary, count, stride = 1 - int(sys.argv[2]), 0, int(sys.argv[2])
def step():
    global count
    count += 1
    if count == boundary:
        os.kill(os.getpid(), signal.SIGKILL)
def guarded(call):
    def inner(*args, **kwargs):
        step()
        try:
            return call(*args, **kwargs)
        finally:
            step()
    return inner
for name in ("fsync", "replace", "rename", "unlink", "mkdir"):
    setattr(os, name, guarded(getattr(os, name)))
while True:  # a fork per boundary, before any library has started a thread
    boundary += stride
    child = os.fork()
    if child == 0:
        t.write_everything(Path(sys.argv[1]) / str(boundary))
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def write_everything(root: Path) -> None:
    """A stage as jobs write it: what is missing, then compaction. Run again after every kill."""
    run = RunDir(root)
    run.prepare({"name": "r"})
    for item, ids in {"a": ["e1", "e3"], "b": ["e2"]}.items():
        if not is_done(run, item):
            commit(run, item, *ids)
    run.compact("label", "clinic", "steady", ["labels"])


@pytest.fixture
def memory_disk() -> Iterator[Path]:
    """A folder in memory where there is one: this test syncs two thousand times."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@pytest.mark.parametrize("stride", [7, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_at_every_write_boundary_then_resumed(memory_disk: Path, stride: int) -> None:
    tmp_path = memory_disk
    script = tmp_path / "writer.py"
    script.write_text(WRITER.format(here=str(Path(__file__).parent)))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(out), str(stride)]
    subprocess.run(command, env=env, check=True, timeout=250)
    survivors = sorted(out.iterdir(), key=lambda p: int(p.name))
    whole = survivors.pop()
    expected = RunDir(whole).read("labels")
    assert len(survivors) * stride > 50, "before and after each fsync, rename, mkdir"
    assert not RunDir(survivors[0]).items("label", "clinic", "steady")
    for folder in survivors:
        write_everything(folder)
        assert tables.diff("labels", RunDir(folder).read("labels"), expected) == [], folder.name
        assert RunDir(folder).items("label", "clinic", "steady") == ["a", "b"]


def test_a_rewrite_killed_half_way_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "r")
    write_everything(run.root)
    commit(run, "c", "e9")

    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("cluster.files.pq.write_table", broken)
    with pytest.raises(OSError, match="no space"):
        run.compact("label", "clinic", "steady", ["labels"])
    assert run.read("labels")["episode_id"].to_pylist() == ["e1", "e2", "e3"]
    monkeypatch.undo()
    run.compact("label", "clinic", "steady", ["labels"])
    assert run.read("labels").num_rows == 4


def test_opening_a_run_directory_creates_nothing(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    assert run.items("label", "clinic", "steady") == []
    assert not run.root.exists()
