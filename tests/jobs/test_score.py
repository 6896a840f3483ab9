"""`sentinel score`: a frozen monitor on a run that grew, was killed, or is another one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scored_runs import PLACE, SMALL, config, copy, monitor, numbers, run_of, score, written

import jobs.calibrate
import jobs.heads
import jobs.label
import jobs.score
from cluster.head_stages import Where
from cluster.run_dir import RunDir
from cluster.score_stages import ScoreItem, score_part
from jobs.__main__ import main
from sentinel.tables import PREFIX_SCORES_OPTIONAL, diff

KILLED = """
import functools, os, signal, sys
from jobs.__main__ import main
from sentinel.heads import store
calls, add = [], store.ScoreStore.add
def dies(self, keys, logits):
    if len(calls) == 5:  # the first head of a portion has written, the second has not
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(1)
    add(self, keys, logits)
store.ScoreStore.add = dies
store.prepare = functools.partial(store.prepare, batch_tokens=500)  # several batches
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def tfidf(tmp_path_factory: Any) -> Iterator[RunDir]:
    yield from run_of(tmp_path_factory.mktemp("tfidf"), {"kind": "tfidf"})


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: Any) -> Iterator[RunDir]:
    yield from run_of(tmp_path_factory.mktemp("encoder"), SMALL)


def grow(target: RunDir, whole: RunDir) -> None:
    """The rest of the episodes arrives; no label does."""
    for name in ("episodes", "turns"):
        table = whole.read(name, *PLACE)
        target.write_table(name, *PLACE, table, stage="collect", source="all")


def own(run_dir: RunDir) -> Any:
    """What stage calibrate wrote of the pools that the final pair scores."""
    table = run_dir.read("prefix_scores", *PLACE)
    return table.filter(pc.field("pool").isin(["calibration", "heldout"]))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every batch that a head reads."""
    from sentinel.heads.model import HeadModel

    rows: list[int] = []
    whole = HeadModel.forward

    def counted(self: Any, ids: Any, mask: Any) -> Any:
        rows.append(len(ids))
        return whole(self, ids, mask)

    monkeypatch.setattr(HeadModel, "forward", counted)
    return rows


def same(one: Any, other: Any, tolerance: float) -> None:
    """Two tables of `prefix_scores`; `tolerance` is in logits, 0 for the same bits."""
    assert diff("prefix_scores", one, other) == []
    for name in ("p_answerable", "p_correct"):
        a, b = (np.array(t[name].to_pylist(), dtype=float) for t in (one, other))
        assert not np.isnan(a).any()
        if tolerance:
            a, b = (np.log(x / (1 - x)) for x in (a, b))
            np.testing.assert_allclose(a, b, atol=tolerance, rtol=0)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["tfidf", pytest.param("encoder", marks=pytest.mark.slow)])
def test_it_scores_as_stage_heads_did_and_nothing_twice(
    kind: str,
    request: Any,
    tmp_path: Path,
    seen: list[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fitted = request.getfixturevalue(kind)
    seen.clear()
    target = copy(fitted, tmp_path)
    assert score(monitor(fitted), "--run-dir", target.root) == 0
    same(written(target), own(fitted), 0)
    (first,) = numbers(target)
    assert first["prefixes"] == written(target).num_rows
    assert first["left_out"] == fitted.read("prefix_scores", *PLACE).num_rows - first["prefixes"]
    assert first["new"] == first["distinct"] <= first["prefixes"]
    assert first["labelled"]
    assert sum(seen) == (2 * first["distinct"] if first["kept"] else 0)
    seen.clear()
    before = written(target)
    assert score(target.root, "--run-dir", target.root) == 0  # a run names its monitors
    assert not seen
    assert written(target).equals(before)
    out = capsys.readouterr().out
    if first["kept"]:
        assert numbers(target)[1]["new"] == numbers(target)[1]["batches"] == 0
        assert "0 new, read in 0 batches" in out
    else:
        assert "TF–IDF keeps no logits" in out


@pytest.mark.slow
def test_a_grown_pool_costs_its_new_prefixes(
    encoder: RunDir, tmp_path: Path, seen: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    target = copy(encoder, tmp_path, episodes=35)
    assert score(monitor(encoder), "--run-dir", target.root) == 0
    (first,) = numbers(target)
    assert sum(seen) == 2 * first["new"]
    grow(target, encoder)
    seen.clear()
    assert score(monitor(encoder), "--run-dir", target.root) == 0
    second = numbers(target)[1]
    assert 0 < second["new"] < second["distinct"]
    assert second["new"] == second["distinct"] - first["distinct"]
    assert sum(seen) == 2 * second["new"]
    assert not second["labelled"]
    assert "answers have no label: sentinel label" in capsys.readouterr().out
    grown, theirs = written(target), own(encoder)
    assert grown["correct"].null_count > theirs["correct"].null_count
    for at, name in enumerate(grown.column_names):
        if name in ("correct", *PREFIX_SCORES_OPTIONAL[1:]):  # what stage label knows
            grown = grown.set_column(at, name, theirs[name])
    same(grown, theirs, 2e-5)


@pytest.mark.slow
def test_a_killed_pass_goes_on(encoder: RunDir, tmp_path: Path, seen: list[int]) -> None:
    target = copy(encoder, tmp_path)
    arguments = [str(monitor(encoder)), "--run-dir", str(target.root), "--on", "debug"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "score", *arguments, "--flush-tokens", "200"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = sorted((target.root / "scored" / "made" / "steady").glob("*.bin"))
    assert len(kept) == 2
    assert kept[0].stat().st_size != kept[1].stat().st_size
    assert not list(kept[0].parent.glob("*.parquet"))
    assert score(monitor(encoder), "--run-dir", target.root) == 0
    (only,) = numbers(target)
    assert 0 < only["new"] < only["distinct"]
    assert only["new"] < sum(seen) < 2 * only["new"]  # the second head read one portion alone
    same(written(target), own(encoder), 2e-5)


@pytest.mark.slow
def test_a_logit_that_is_not_finite_is_kept_nowhere(
    encoder: RunDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from sentinel.heads.model import HeadModel

    target = copy(encoder, tmp_path)
    with monkeypatch.context() as patch:
        whole = HeadModel.forward
        patch.setattr(HeadModel, "forward", lambda *given: whole(*given) * float("nan"))
        assert score(monitor(encoder), "--run-dir", target.root) == 3
    assert "made/steady: HeadFailure: the logits of" in capsys.readouterr().err
    assert not list((target.root / "scored").rglob("*.parquet"))
    assert score(monitor(encoder), "--run-dir", target.root) == 0
    same(written(target), own(encoder), 0)


@pytest.mark.slow
def test_a_worker_of_ray_scores_alike(encoder: RunDir, tmp_path: Path, ray_cluster: Any) -> None:
    target = copy(encoder, tmp_path)
    item = ScoreItem(
        Where(str(target.root), *PLACE), str(monitor(encoder)), ("calibration", "heldout")
    )
    ((_, found),) = ray_cluster.map("score", score_part, [item])
    table = jobs.score.prefix_scores(
        config(**SMALL), target, item.where, found["scores"], item.pools
    )
    same(table, own(encoder), 2e-5)


def test_a_table_for_decide(
    tfidf: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The frozen policy on the new table gives what it gave on the run's own."""
    target = copy(tfidf, tmp_path)
    path = tmp_path / "t.csv"
    assert score(monitor(tfidf), "--run-dir", target.root, "--out", path) == 0
    table = tmp_path / "own.parquet"
    pq.write_table(own(tfidf), table)
    found = []
    for name in (path, table):
        capsys.readouterr()
        asked = ["decide", str(name), "--monitor", str(monitor(tfidf)), "--resamples", "50"]
        assert main(asked) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    policy = json.loads((monitor(tfidf) / "policy.json").read_text())
    assert found[0]["agents"]["steady"]["policy"] == policy
    assert found[0]["agents"]["steady"]["evaluation"]["episodes"] == 12
    pq.write_table(pq.read_table(table).drop_columns(["agent"]), table)
    assert main(["decide", str(table), "--monitor", str(monitor(tfidf))]) == 2
    assert "the monitor is of agent steady" in capsys.readouterr().err


def test_without_labels_and_with_the_train_pool(
    tfidf: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = copy(tfidf, tmp_path)
    for name in ("labels", "features"):
        shutil.rmtree(target.root / "tables" / name)
    assert score(monitor(tfidf), "--run-dir", target.root, "--pool", "train") == 0
    table = written(target)
    assert set(table["pool"].to_pylist()) == {"train"}
    assert table["correct"].null_count == table["lp_mean"].null_count == table.num_rows > 0
    assert table["p_correct"].null_count == 0
    assert "have no label" in capsys.readouterr().out
