"""`sentinel decide`, and the stages calibrate and bootstrap: one function, the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from cluster import files
from cluster.pool import Cluster
from cluster.run_dir import RunDir
from jobs import bootstrap, calibrate
from jobs.__main__ import main
from jobs.config import RunConfig
from jobs.pace import pace_path
from sentinel import tables
from sentinel.calibrate import sigmoid
from sentinel.errors import UserError


def config(**changes: Any) -> RunConfig:
    """A run of one agent, in a plain loop."""
    agents = [{"name": "solid", "engine": "transformers", "model": "nano:solid"}]
    raw = {"name": "r", "on": "debug", "benchmarks": [{"name": "clinic"}], "agents": agents}
    raw["bootstrap"] = {"resamples": 100}
    return RunConfig.from_mapping({**raw, **changes})


def write_tables(run_dir: RunDir, n: int = 240, end_of_last: str = "answered") -> None:
    """Tables of a finished run up to its scores: one agent, 40 groups, 3 pools."""
    rng = np.random.default_rng(5)
    rows: dict[str, list[dict[str, Any]]] = {
        "tasks": [], "episodes": [], "labels": [], "features": [], "scores": []
    }  # fmt: skip
    volatile = ("seconds", "started_at", "worker", "host", "attempt")
    for i in range(n):
        group, T = i % 40, int(rng.integers(1, 5))
        answerable = group % 10 != 0
        end = "answered" if rng.random() < 0.8 else "abstained"
        end = end_of_last if i == n - 1 else end
        right = bool(rng.random() < 0.6) and answerable
        task = {"benchmark": "clinic", "task_id": f"q{i:03}", "group": f"0{group:02}"}
        where = {"benchmark": "clinic", "agent": "solid", "episode_id": f"clinic/solid/q{i:03}/0"}
        rows["tasks"].append(
            task
            | {"pool": ("train", "calibration", "heldout")[group % 3], "fold": None, "text": "?"}
            | {"answerable": answerable, "gold": None, "meta": "{}"}
        )
        episode = where | {k: task[k] for k in ("task_id", "group")}
        episode |= {"rollout": 0, "end": end, "turns": T, "action": None, "answer": None}
        episode |= {"answer_error": None, "success": None, "error": None, "prefix_property": True}
        episode |= {"prompt_tokens": 9, "generated_tokens": 5 * T, "agent_hash": "h"}
        rows["episodes"].append(
            episode
            | {"engine": "e", "environment": None, "cost_usd": None}
            | dict.fromkeys(volatile)
        )
        for label, correct in (("typed", right), ("strict-2022", right and i % 3 > 0)):
            verdict = {"label": label, "correct": correct, "source": "match"}
            rows["labels"].append(where | verdict | {"version": "1", "error": None})
        for t in range(T + 1):
            features = {name: float(rng.normal()) for name in tables.FEATURES}
            counts = {"tokens_so_far": 5 * t, "seconds_so_far": 0.1 * t}
            rows["features"].append(where | {"t": t} | features | counts)
            for head, side in (("answerability", not answerable), ("correctness", right)):
                logit = float(rng.normal(3.0 if side else -1.0))
                score = {"t": t, "head": head, "logit": logit, "fold": None, "truncated": False}
                rows["scores"].append(where | score)
    for name, found in rows.items():
        agent = None if name == "tasks" else "solid"
        table = tables.ALL[name].from_rows(found)
        run_dir.write_table(name, "clinic", agent, table, stage="test", source="test")


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    """A run directory whose heads have scored everything."""
    found = RunDir(tmp_path / "runs" / "r")
    write_tables(found)
    return found


def stages(run_config: RunConfig, run_dir: RunDir) -> Path:
    """Both stages in a plain loop; the monitor's folder."""
    cluster = Cluster("debug", 1, 0)
    calibrate.run(run_config, run_dir, cluster)
    bootstrap.run(run_config, run_dir, cluster)
    return calibrate.monitor_folder(run_dir, "clinic", "solid")


def decide(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `sentinel decide`."""
    code = main(["decide", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_stage_and_command_print_the_same_bytes(
    run_dir: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    """The run's own prefix_scores through `sentinel decide TABLE`, from Parquet and from CSV."""
    folder = stages(config(), run_dir)
    table = run_dir.read("prefix_scores", "clinic", "solid")
    path = tmp_path / f"mine.{suffix}"
    (pq.write_table if suffix == "parquet" else csv.write_csv)(table, path)
    capsys.readouterr()
    code, out, _ = decide(capsys, path, "--resamples", 100)
    assert code == 0
    assert out.encode() == (folder / "decide.json").read_bytes()
    found = json.loads(out)["agents"]["solid"]
    evaluation = json.loads((folder / "evaluation.json").read_text())
    policy = json.loads((folder / "policy.json").read_text())
    assert found["evaluation"].items() <= evaluation.items()
    assert found["policy"].items() <= policy.items()
    assert evaluation["ledger"]["monitors"] == [found["policy_hash"]]
    assert set(evaluation["rescored"]) == {"strict-2022"}


def test_tables_agree_with_the_evaluation(run_dir: RunDir) -> None:
    """Rewards average to the ladder's score, per system and λ; intervals are the ladder's."""
    folder = stages(config(), run_dir)
    evaluation = json.loads((folder / "evaluation.json").read_text())
    rows = run_dir.read("decisions", "clinic", "solid").to_pylist()
    held = {r["episode_id"] for r in rows}
    assert len(held) == evaluation["episodes"] == 78
    intervals = {
        (r["statistic"], r["system"], r["lam"], r["stratum"]): r
        for r in run_dir.read("intervals", "clinic", "solid").to_pylist()
    }
    for rung in evaluation["ladder"]:
        lam = float(rung["lam"])
        mine = [r for r in rows if (r["system"], r["lam"]) == (rung["system"], lam)]
        assert np.mean([r["reward"] for r in mine]) == pytest.approx(rung["rs"])
        assert sum(r["delivered"] for r in mine) == rung["delivered"]
        for name, expected in rung["intervals"].items():
            found = intervals[name, rung["system"], lam, "-"]
            assert {k: found[k] for k in expected} == expected
    statistics = {key[0] for key in intervals}
    assert {"auroc_correctness", "auroc_withhold", "gate_share", "rs_minus_abstain"} <= statistics
    # p_answerable is the probability of being answerable, from the logit of being unanswerable.
    scores = run_dir.read("scores", "clinic", "solid").to_pylist()
    prefix = run_dir.read("prefix_scores", "clinic", "solid").to_pylist()
    first = next(s for s in scores if s["head"] == "answerability" and s["t"] == 1)
    same = next(p for p in prefix if (p["episode_id"], p["t"]) == (first["episode_id"], 1))
    assert same["p_answerable"] == pytest.approx(float(sigmoid(-first["logit"])))


def test_resume_and_added_stakes(run_dir: RunDir) -> None:
    """Repeating writes nothing; one more λ keeps the finished parts and needs no new look."""
    folder = stages(config(), run_dir)
    before = {p: p.stat().st_mtime_ns for p in run_dir.root.rglob("*.parquet")}
    stages(config(), run_dir)
    assert before == {p: p.stat().st_mtime_ns for p in run_dir.root.rglob("*.parquet")}
    more = config(decide={"lambdas": [1.0, 4.0, 9.0, 2.5], "shares": [0.2, 0.33, 0.5]})
    stages(more, run_dir)
    found = run_dir.read("decisions", "clinic", "solid").column("lam").to_pylist()
    assert set(found) == {1.0, 2.5, 4.0, 9.0}
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert {r["share"] for r in evaluation["reweighted"]} == {"0.2", "0.33", "0.5"}
    assert len(evaluation["ledger"]["monitors"]) == 1


def test_a_serial_rerun_gives_seconds_saved(run_dir: RunDir) -> None:
    """Timed afterwards, per agent: the evaluation is made again, the intervals stay."""
    folder = stages(config(), run_dir)
    path = folder / "evaluation.json"
    assert all(r["seconds_serial"] is None for r in json.loads(path.read_text())["ladder"])
    before = {p: p.stat().st_mtime_ns for p in (run_dir.root / "tables").rglob("*.parquet")}
    files.write_json(pace_path(run_dir, "clinic", "solid"), {"seconds_per_step": 1.5})
    stages(config(), run_dir)
    for rung in json.loads(path.read_text())["ladder"]:
        assert rung["seconds_serial"]["saved"] == 1.5 * rung["steps"]["saved"]
    assert before == {p: p.stat().st_mtime_ns for p in (run_dir.root / "tables").rglob("*.parquet")}
    stages(config(decide={"seconds_per_step": 2.0}), run_dir)  # the config's own figure wins
    rung = json.loads(path.read_text())["ladder"][0]
    assert rung["seconds_serial"]["seconds_per_step"] == 2.0


def test_bootstrap_asks_for_calibrate_first(run_dir: RunDir) -> None:
    """A stake without a stop is named, with the command that fits it."""
    stages(config(), run_dir)
    with pytest.raises(UserError, match=r"no stop for λ = 2; sentinel calibrate"):
        bootstrap.run(config(decide={"lambdas": [1.0, 2.0]}), run_dir, Cluster("debug", 1, 0))


@pytest.mark.slow
def test_ray_gives_the_same_bytes(run_dir: RunDir, tmp_path: Path, ray_cluster: Cluster) -> None:
    """A task per agent on Ray, or a plain loop."""
    folder = stages(config(), run_dir)
    second = RunDir(tmp_path / "runs" / "ray")
    write_tables(second)
    calibrate.run(config(), second, ray_cluster)
    bootstrap.run(config(), second, ray_cluster)
    other = calibrate.monitor_folder(second, "clinic", "solid")
    assert (other / "decide.json").read_bytes() == (folder / "decide.json").read_bytes()


def test_another_monitor_needs_a_reason(run_dir: RunDir, tmp_path: Path) -> None:
    """A changed budget under finished work is refused; in a new run the ledger asks why."""
    stages(config(), run_dir)
    other = {"gate_budget": "0.1"}
    with pytest.raises(UserError, match="another configuration"):
        stages(config(decide=other), run_dir)
    second = RunDir(tmp_path / "runs" / "second")
    write_tables(second)
    with pytest.raises(UserError, match="--again"):
        stages(config(decide=other), second)
    stages(config(), second)  # the same monitor: a replay
    third = RunDir(tmp_path / "runs" / "third")
    write_tables(third)
    again = config(decide=other).model_copy(update={"again": "budget was a typing error"})
    folder = stages(again, third)
    ledger = json.loads((folder / "evaluation.json").read_text())["ledger"]
    assert ledger["reasons"] == ["budget was a typing error"]
    assert len(ledger["monitors"]) == 2


def test_episodes_without_outcome(tmp_path: Path) -> None:
    """Those a monitor ended are refused unless dropped; an engine's error leaves every metric."""
    run_dir = RunDir(tmp_path / "runs" / "stopped")
    write_tables(run_dir, end_of_last="stopped")
    with pytest.raises(UserError, match="1 episodes were ended by a monitor"):
        stages(config(), run_dir)
    stages(config(decide={"drop_stopped": True}), run_dir)
    assert len(set(_ids(run_dir))) == 239
    broken = RunDir(tmp_path / "elsewhere" / "runs" / "broken")
    write_tables(broken, end_of_last="engine_error")
    stages(config(), broken)
    assert len(set(_ids(broken))) == 239


def _ids(run_dir: RunDir) -> list[str]:
    return list(run_dir.read("prefix_scores", "clinic", "solid").column("episode_id").to_pylist())


def test_a_label_nobody_made_and_missing_tables(run_dir: RunDir) -> None:
    """One line for the first; an agent without tables is left for later."""
    with pytest.raises(UserError, match="no label success"):
        stages(config(label="success"), run_dir)
    two = [{"name": n, "engine": "transformers", "model": "nano:x"} for n in ("solid", "absent")]
    stages(config(agents=two), run_dir)
    assert not run_dir.table_path("decisions", "clinic", "absent").exists()


def test_users_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, cause and next step, no traceback; all faults of a table at once."""
    bad = tmp_path / "bad.csv"
    bad.write_text("episode_id,t,T,colour\n1,0,1,red\n")
    cases = [
        ((tmp_path / "none.parquet",), "no file"),
        ((tmp_path,), "neither .parquet nor .csv"),
        ((bad,), "missing columns: group, pool, answerable"),
        ((bad,), "unknown columns: colour"),
        ((bad, "--lambdas", "-1"), "no finite decimal"),
        ((bad, "--gate-budget", "2"), "gate budget 2"),
    ]
    cut = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"a": [1]}), cut)
    cut.write_bytes(cut.read_bytes()[:-5])
    cases.append(((cut,), "cannot be read"))
    for arguments, expected in cases:
        code, out, err = decide(capsys, *arguments)
        assert (code, out) == (2, ""), expected
        assert expected in err
        assert err.count("\n") == 1


def test_agents_are_decided_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two agents in one table, in any order of rows; --agent picks one; --out writes a file."""
    from small_prefix_scores import table

    parts = []
    for seed, agent in ((1, "b"), (2, "a")):
        part = table(seed)
        parts.append(part.append_column("agent", pa.array([agent] * part.num_rows)))
    both = pa.concat_tables(parts)
    pq.write_table(both, tmp_path / "both.parquet")
    pq.write_table(parts[1], tmp_path / "one.parquet")
    out = tmp_path / "out.json"
    code, _, _ = decide(capsys, tmp_path / "both.parquet", "--resamples", 20, "--out", out)
    assert code == 0
    found = json.loads(out.read_text())["agents"]
    assert list(found) == ["a", "b"]
    _, alone, _ = decide(capsys, tmp_path / "one.parquet", "--resamples", 20)
    assert json.loads(alone)["agents"]["a"] == found["a"]
    _, picked, _ = decide(capsys, tmp_path / "both.parquet", "--resamples", 20, "--agent", "a")
    assert picked == alone
    code, _, err = decide(capsys, tmp_path / "both.parquet", "--agent", "c")
    assert code == 2
    assert "it has: a, b" in err


def with_driver(driver: str, resamples: int = 100) -> RunConfig:
    return config(bootstrap={"resamples": resamples, "driver": driver})


def outcome(run_dir: RunDir) -> list[Any]:
    folder = calibrate.monitor_folder(run_dir, "clinic", "solid")
    evaluation = json.loads((folder / "evaluation.json").read_text())
    del evaluation["ledger"]  # the second look at one pool is counted
    return [(folder / "decide.json").read_bytes(), evaluation, run_dir.read("intervals")]


def test_aurocs_in_blocks_of_resamples_give_the_same_bytes(
    run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent × statistic × block of resamples; more resamples keep the finished blocks."""
    stages(with_driver("inline"), run_dir)
    assert run_dir.items(bootstrap.DRAWS, "clinic", "solid") == []
    monkeypatch.setattr("sentinel.decide.blocks.BLOCK", 30)
    second = RunDir(tmp_path / "runs" / "blocks")
    write_tables(second)
    stages(with_driver("tune"), second)
    assert outcome(second) == outcome(run_dir)
    items = second.items(bootstrap.DRAWS, "clinic", "solid")
    assert "auroc_correctness head t=T resamples-90-99" in items
    assert len(items) % 4 == 0
    assert tables.BOOTSTRAP_DRAWS.name in tables.ALL
    first = second.marker_path(bootstrap.DRAWS, "clinic", "solid", items[0])
    before = first.read_text()
    for folder in ("parts/bootstrap", "monitor/clinic/solid/evaluation.json"):
        shutil.rmtree(second.root / folder, ignore_errors=True)
        (second.root / folder).unlink(missing_ok=True)
    bootstrap.run(with_driver("tune", 160), second, Cluster("debug", 1, 0))
    assert first.read_text() == before
    assert "auroc_withhold deployed - resamples-150-159" in second.items(
        bootstrap.DRAWS, "clinic", "solid"
    )


def test_auto_takes_blocks_where_resamples_times_groups_squared_is_large(
    run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages(with_driver("auto"), run_dir)
    assert run_dir.items(bootstrap.DRAWS, "clinic", "solid") == []
    second = RunDir(tmp_path / "runs" / "many")
    write_tables(second)
    monkeypatch.setattr("sentinel.decide.blocks.MANY", 1000.0)
    stages(with_driver("auto"), second)
    assert second.items(bootstrap.DRAWS, "clinic", "solid") != []
    assert outcome(second) == outcome(run_dir)


@pytest.mark.slow
def test_aurocs_as_ray_tune_trials_give_the_same_bytes(
    run_dir: RunDir, tmp_path: Path, ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages(with_driver("inline"), run_dir)
    monkeypatch.setattr("sentinel.decide.blocks.BLOCK", 50)
    second = RunDir(tmp_path / "runs" / "tune")
    write_tables(second)
    calibrate.run(with_driver("tune"), second, ray_cluster)
    bootstrap.run(with_driver("tune"), second, ray_cluster)
    assert outcome(second) == outcome(run_dir)
