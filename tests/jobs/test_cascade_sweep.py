"""`sentinel cascade-sweep`: rows and summary of the direct call, on Ray and in a plain loop."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_round_scores

from cluster.pool import Cluster
from cluster.run_dir import RunDir
from jobs import cascade_sweep
from jobs.__main__ import main
from sentinel import tables
from sentinel.cascade import CascadeConfig, cascade

TARGETS = ["0.8", "0.95"]


def write(folder: Path, scorers: int = 2) -> list[Path]:
    """One file per cell, each with `scorers` scorers."""
    found = []
    for i, cell in enumerate(("w/x", "w/[bold]y")):
        both = []
        for s in range(scorers):
            table = small_round_scores.table(10 * i, tasks=60, separation=1.0 + s)
            for name, value in (("cell", cell), ("scorer", f"probe {s}")):
                table = table.append_column(name, pa.array([value] * table.num_rows))
            both.append(table)
        found.append(folder / f"{i}.parquet")
        pq.write_table(pa.concat_tables(both), found[-1])
    return found


def arguments(files: list[Path], root: Path, *more: str) -> list[str]:
    names = [str(path) for path in files]
    base = ["cascade-sweep", *names, "--run-dir", str(root), "--target", *TARGETS]
    return [*base, "--gates", "3", "--seeds", "7", "--block", "3", *more]


def test_rows_and_summary_equal_the_direct_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files, root = write(tmp_path), tmp_path / "run"
    assert main(arguments(files, root, "--on", "debug")) == 0
    assert "w/[bold]y" in capsys.readouterr().out
    config = CascadeConfig.of(TARGETS, "paper", seeds=7, gates=3)
    direct = cascade(pa.concat_tables(pq.read_table(f) for f in files), config)["cells"]
    found = json.loads((root / "cascade-sweep.json").read_text())
    assert "Abort cascade" in (root / "cascade-sweep.html").read_text()
    assert (found["mode"], found["missing"]) == ("paper", [])
    assert [(c["cell"], c["scorer"]) for c in found["cells"]] == [
        (c["cell"], c["scorer"]) for c in direct
    ]
    assert [c["summary"] for c in found["cells"]] == [c["seeds"]["summary"] for c in direct]
    rows = tables.CASCADE_ROWS.check(RunDir(root).read("cascade_rows"))
    keys = ("cell", "scorer", "seed", "target", "allocation")
    expected = {
        (c["cell"], c["scorer"], r["seed"], r["target"], r["allocation"]): r
        for c in direct
        for r in c["seeds"]["rows"]
    }
    assert rows.num_rows == len(expected) == 4 * 7 * 2 * 4
    for row in rows.to_pylist():
        line = expected[tuple(row[k] for k in keys)]
        assert all(row[k] == v for k, v in line.items())


def test_more_seeds_and_another_block_size_keep_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files, root = write(tmp_path, scorers=1), tmp_path / "run"
    command = arguments(files, root, "--on", "debug")
    assert main(command) == 0
    marker = RunDir(root).marker_path("cascade", "w/x", "probe 0", "seeds-0-2")
    before = marker.read_text()
    assert main([*command, "--seeds", "9"]) == 0
    assert marker.read_text() == before
    assert main([*command, "--block", "4"]) == 0  # parts of both sizes lie there, rows only once
    found = json.loads((root / "cascade-sweep.json").read_text())
    assert [c["seeds"] for c in found["cells"]] == [7, 7]
    assert main([*command, "--margin", "0.01"]) == 2
    assert "another configuration" in capsys.readouterr().err
    assert main([*command, "--mode", "strict"]) == 2
    assert "strict mode looks once" in capsys.readouterr().err


def test_a_cell_that_cannot_be_split_is_named_and_the_others_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files, root = write(tmp_path, scorers=1), tmp_path / "run"
    short = pq.read_table(files[0]).slice(0, 0)
    table = small_round_scores.table(tasks=1, rollouts=1)
    for name, value in (("cell", "tiny"), ("scorer", "probe 0")):
        table = table.append_column(name, pa.array([value] * table.num_rows))
    pq.write_table(pa.concat_tables([short, table.select(short.column_names)]), files[0])
    assert main(arguments(files, root, "--on", "debug")) == 3
    err = capsys.readouterr().err
    assert "missing: cascade/tiny/probe 0/seeds-0-2" in err
    found = json.loads((root / "cascade-sweep.json").read_text())
    assert [c["cell"] for c in found["cells"]] == ["w/[bold]y"]
    assert len(found["missing"]) == 3


def test_trials_on_ray_give_the_bits_of_the_loop(ray_cluster: Cluster, tmp_path: Path):
    config = CascadeConfig.of(TARGETS, "paper", seeds=6, gates=3)
    files = write(tmp_path)
    found = []
    for name, cluster in (("ray", ray_cluster), ("loop", Cluster("debug", 1, 0))):
        run_dir = RunDir(tmp_path / name)
        summary, failed = cascade_sweep.run(files, config, 3, run_dir, cluster)
        assert failed == []
        found.append((summary, run_dir.read("cascade_rows")))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command_on_one_and_two_workers(workers: str, tmp_path: Path):
    files = write(tmp_path)
    for name, more in (("ray", ["--workers", workers]), ("loop", ["--on", "debug"])):
        assert main(arguments(files, tmp_path / name, *more)) == 0
    summaries = [(tmp_path / n / "cascade-sweep.json").read_bytes() for n in ("ray", "loop")]
    assert summaries[0] == summaries[1]
    rows = [RunDir(tmp_path / n).read("cascade_rows") for n in ("ray", "loop")]
    assert rows[0].equals(rows[1])
