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
from made_episodes import made_collection

import jobs.calibrate
import jobs.heads
import jobs.label
import jobs.score
from cluster import files
from cluster.head_stages import Where
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from cluster.score_stages import ScoreItem, score_part
from jobs.__main__ import main
from jobs.config import RunConfig
from sentinel.tables import PREFIX_SCORES_OPTIONAL, diff

SMALL = {"width": 16, "layers": 1, "epochs": 1, "learning_rate": 0.01, "batch_size": 8}
PLACE = "made", "steady"
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


def config(**heads: Any) -> RunConfig:
    agents = [
        {"name": n, "engine": "transformers", "model": f"nano:{n}"} for n in ("steady", "other")
    ]
    return RunConfig.from_mapping(
        {
            "name": "mini",
            "on": "debug",
            "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
            "agents": agents,
            "heads": {"folds": 2, "validation": 0.2, **heads},
            "decide": {"gate_budget": "0.2", "lambdas": [1, 4]},
            "bootstrap": {"resamples": 100},
        }
    )


def finished(root: Path, settings: RunConfig) -> RunDir:
    run_dir = RunDir(root / "runs" / "mini")
    run_dir.prepare(settings.model_dump(mode="json"))
    made_collection(run_dir)
    with open_cluster("debug", 1) as cluster:
        for stage in (jobs.label, jobs.heads, jobs.calibrate):
            stage.run(settings, run_dir, cluster)
    return run_dir


@pytest.fixture(scope="module")
def tfidf(tmp_path_factory: Any) -> Iterator[RunDir]:
    yield from run_of(tmp_path_factory.mktemp("tfidf"), {"kind": "tfidf"})


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: Any) -> Iterator[RunDir]:
    yield from run_of(tmp_path_factory.mktemp("encoder"), SMALL)


def run_of(root: Path, heads: dict[str, Any]) -> Iterator[RunDir]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(root / "cache"))
        yield finished(root, config(**heads))


def copy(run_dir: RunDir, folder: Path, episodes: int | None = None) -> RunDir:
    """The same run elsewhere; with `episodes` before the others were collected or labelled."""
    found = RunDir(shutil.copytree(run_dir.root, folder / "runs" / "target"))
    shutil.rmtree(found.root / "scored", ignore_errors=True)
    if episodes is not None:
        ids = sorted(run_dir.read("episodes", *PLACE)["episode_id"].to_pylist())
        keep = pc.field("episode_id").isin(ids[:episodes])
        for name in ("episodes", "turns", "labels", "features"):
            table = run_dir.read(name, *PLACE).filter(keep)
            found.write_table(name, *PLACE, table, stage="collect", source="first")
    return found


def grow(target: RunDir, whole: RunDir) -> None:
    """The rest of the episodes arrives; no label does."""
    for name in ("episodes", "turns"):
        table = whole.read(name, *PLACE)
        target.write_table(name, *PLACE, table, stage="collect", source="all")


def monitor(run_dir: RunDir) -> Path:
    return run_dir.root / "monitor" / "made" / "steady" / "sentinel"


def score(*arguments: object) -> int:
    return main(["score", *map(str, arguments), "--on", "debug"])


def numbers(run_dir: RunDir) -> list[dict[str, Any]]:
    lines = map(json.loads, run_dir.metrics_path.read_text().splitlines())
    return [m for m in lines if m.get("event") == "scored"]


def written(run_dir: RunDir) -> Any:
    (path,) = (run_dir.root / "scored" / "made" / "steady").glob("prefix_scores-*.parquet")
    return pq.read_table(path)


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
