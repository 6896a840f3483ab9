"""The cascade's stages on made-up tables: one join, both modes, resume, faults of one cell."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import made_rounds
import numpy as np
import pytest

from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs import __main__ as cli
from jobs.config import RunConfig
from jobs.results import has_result, missing_parts
from sentinel.errors import UserError
from sentinel.probes import monitor
from sentinel.probes.export import load

BOTH = [{"name": n, "method": n} for n in ("cascade", "sentinel")]
MADE = ("collect", "activations")
N = 120


def finish(
    config: RunConfig,
    run_dir: RunDir,
    stages: Sequence[str] | None = None,
    cluster: Cluster | None = None,
) -> None:
    """The stages after those whose tables were made up; in a plain loop, or on a cluster."""
    with open_cluster("debug", 2) as here:
        for stage in stages or [s for s in config.stages if s not in MADE]:
            module: Any = importlib.import_module(f"jobs.{stage}")
            module.run(config, run_dir, here if cluster is None else cluster)


def begin(root: Path, config: RunConfig, **made: Any) -> RunDir:
    run_dir = RunDir(root)
    run_dir.prepare(config.model_dump(mode="json"))
    made_rounds.write(run_dir, **made)
    return run_dir


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return made_rounds.config(monitors=BOTH, label="typed")


@pytest.fixture(scope="module")
def run_dir(config, tmp_path_factory) -> RunDir:
    found = begin(tmp_path_factory.mktemp("made") / "runs" / "r", config, n=N)
    finish(config, found)
    return found


def stamps(run_dir: RunDir) -> dict[Path, int]:
    folders = ("tables", "cascade", "probes", "monitor")
    return {
        p: p.stat().st_mtime_ns
        for f in folders
        for p in (run_dir.root / f).rglob("*")
        if p.is_file()
    }


def test_every_stage_leaves_its_table(config, run_dir):
    for stage in config.stages:
        assert missing_parts(config, run_dir, stage) == []


def test_a_run_has_the_stages_that_its_monitors_need():
    def stages(*names: str, **more: Any) -> set[str]:
        monitors = [{"name": n, "method": n} for n in names]
        return set(made_rounds.config(monitors=monitors, **more).stages)

    always = {"collect", "label", "bootstrap", "report"}
    assert stages() == stages("sentinel") == always | {"heads", "audit", "calibrate"}
    assert stages("cascade") == always | {"activations", "probes", "search"}
    plain = {"scorers": ["surface", "task"], "main": "surface", "deploy": "surface"}
    assert stages("cascade", cascade=plain) == always | {"probes", "search"}


def test_scores_of_both_modes_hold_every_scorer(config, run_dir):
    paper = run_dir.read("round_scores_paper", "world", "able")
    assert set(paper["scorer"].to_pylist()) == set(config.cascade.scorers)
    assert paper["pool"].null_count == paper.num_rows
    strict = run_dir.read("round_scores_strict", "world", "able")
    assert set(strict["scorer"].to_pylist()) == {"probe"}
    fit = np.array(strict["pool"].to_pylist()) == "fit"
    assert all(s is None for s in np.array(strict["score"].to_pylist(), dtype=object)[fit])


@pytest.mark.parametrize("mode", ["paper", "strict"])
def test_the_run_writes_what_the_command_prints_byte_for_byte(mode, run_dir, tmp_path, capsys):
    table = run_dir.table_path(f"round_scores_{mode}", "world", "able")
    out = tmp_path / "found.json"
    targets = {"paper": ["0.85", "0.95"], "strict": ["0.8", "0.9"]}[mode]
    seeds = ["--seeds", "3"] if mode == "paper" else []
    argv = ["cascade", str(table), "--mode", mode, "--target", *targets, *seeds]
    assert cli.main([*argv, "--out", str(out)]) == 0
    written = run_dir.root / "cascade" / "world" / "able" / f"{mode}.json"
    assert written.read_bytes() == out.read_bytes()
    capsys.readouterr()


def test_only_strict_mode_says_guaranteed(run_dir):
    folder = run_dir.root / "cascade" / "world"
    for path in folder.glob("*/paper.json"):
        assert "guaranteed:" not in path.read_text()
        assert not any(
            t["guarantee"]["guaranteed"]
            for c in json.loads(path.read_text())["cells"]
            for t in c["targets"]
        )


def test_the_exported_monitor_decides_as_the_tables_do(run_dir):
    """Every gate of every episode: the folder's own probes and policies against the play."""
    from sentinel.cascade.play import play
    from sentinel.cascade.table import from_table

    found = monitor.read(run_dir.root / "monitor" / "world" / "able" / "cascade")
    (rounds,) = from_table(run_dir.read("round_scores_strict", "world", "able"))
    vectors = {
        (r["episode_id"], r["turn"]): r["vector"]
        for r in run_dir.read("activations", "world", "able").to_pylist()
    }
    assert set(found.policies) == {"0.8", "0.9"}
    assert found.agent_hash == "hash of able"
    for target, policy in found.policies.items():
        played = play(policy.thresholds, rounds)
        for i in np.flatnonzero(rounds.pool != "fit"):
            gates = [
                r
                for r in range(1, min(int(rounds.T[i]), 6) + 1)
                if found.aborts(r, target, vectors[rounds.episode[i], r])
            ]
            assert (gates[0] if gates else 0) == played.gate[i]
    with pytest.raises(UserError, match=r"no policy for target 0\.7"):
        found.aborts(1, "0.7")


def test_running_it_again_changes_no_file(config, run_dir):
    before = stamps(run_dir)
    finish(config, run_dir, [s for s in config.stages if s not in (*MADE, "report")])
    assert stamps(run_dir) == before


def test_one_more_target_seed_or_scorer_leaves_finished_work_alone(config, run_dir, tmp_path):
    import shutil

    shutil.copytree(run_dir.root, tmp_path / "runs" / "r")
    shutil.copytree(run_dir.root.parent.parent / "ledgers", tmp_path / "ledgers")
    copy = RunDir(tmp_path / "runs" / "r")
    more = {"targets": ["0.8", "0.85", "0.95"], "seeds": 4, "strict_targets": ["0.8", "0.9"]}
    scorers = [*config.cascade.scorers, "tfidf"]
    wider = made_rounds.config(monitors=BOTH, label="typed", cascade={**more, "scorers": scorers})
    parts = [p for p in (copy.root / "parts").rglob("*") if p.is_file()]
    before = {p: p.stat().st_mtime_ns for p in parts}
    finish(wider, copy, ["probes", "search", "bootstrap"])
    assert {p: p.stat().st_mtime_ns for p in parts} == before
    rows = copy.read("cascade_rows", "world", "able")
    paper = [r for r in rows.to_pylist() if r["mode"] == "paper"]
    assert {r["seed"] for r in paper} == {0, 1, 2, 3}
    assert {r["target"] for r in paper} == {"0.8", "0.85", "0.95"}
    assert {r["scorer"] for r in paper} == set(scorers)


def test_another_policy_on_the_tested_tasks_needs_a_reason(config, run_dir, tmp_path):
    """A new run directory does not forget: the ledger lies beside the runs."""
    other = made_rounds.config(cascade={"modes": ["strict"], "strict_targets": ["0.7"]})
    root = run_dir.root.parent / "again"
    begun = begin(root, other, n=N)
    with pytest.raises(UserError, match="already evaluated"):
        finish(other, begun, ["label", "probes", "search"])
    told = other.model_copy(update={"again": "a looser target"})
    finish(told, begun, ["search"])
    assert (root / "cascade" / "world" / "able" / "strict.json").exists()


def test_the_page_has_the_cascades_sections_and_every_number_is_on_disk(run_dir):
    page = (run_dir.root / "report.html").read_text()
    for title in (
        "Cascade: deployed policies",
        "Cascade: savings frontier",
        "Cascade: scorer ablation",
        "Cascade: AUROC per round",
        "Cascade: what the hidden state adds",
        "Cascade: episodes alive",
        "Cascade: margin sweep",
        "Every monitor on every benchmark",
    ):
        assert title in page
    with (run_dir.root / "report" / "every_monitor.csv").open() as file:
        rows = list(csv.DictReader(file))
    kinds = {(r["agent"], r["monitor"].split()[0].rstrip(",")) for r in rows}
    assert kinds == {(a, m) for a in ("able", "weak") for m in ("cascade", "sentinel")}
    heads = [r for r in rows if r["monitor"].startswith("sentinel")]
    assert all("answerability head" in r["off"] and "exit gate" in r["off"] for r in heads)
    assert all(r["off"] == "" for r in rows if r["monitor"].startswith("cascade"))


def test_the_heads_of_an_environment_know_no_answerability(run_dir):
    policy = json.loads((run_dir.root / "monitor/world/able/policy.json").read_text())
    assert policy["gate"]["theta"] == "never"
    assert any(flag.startswith("no gate") for flag in policy["flags"])
    heads = set(run_dir.read("scores", "world", "able")["head"].to_pylist())
    assert heads == {"correctness"}
    joined = run_dir.read("prefix_scores", "world", "able")
    assert joined["p_answerable"].null_count == joined.num_rows
    assert set(joined["answerable"].to_pylist()) == {True}
    ends = {r["episode_id"]: r for r in run_dir.read("episodes", "world", "able").to_pylist()}
    for row in joined.to_pylist():
        end = ends[row["episode_id"]]
        assert row["answered"] == (end["end"] == "answered")
        assert row["correct"] == (end["success"] if row["answered"] else None)


def test_one_class_stops_its_cell_is_named_and_the_others_finish(tmp_path, caplog):
    """An agent that never succeeds has no folds; the other agent's cell is whole."""
    config = made_rounds.config()
    run_dir = begin(tmp_path / "runs" / "r", config, n=60, wins=(0.4, -50.0))
    finish(config, run_dir, ["label", "probes", "search", "bootstrap"])
    assert "0 hold successes" in caplog.text
    assert "paper-probe of world/weak" in caplog.text
    assert "all 18 training episodes failed" in caplog.text
    assert has_result(config, run_dir, "probes", "world", "able")
    assert missing_parts(config, run_dir, "probes") == ["probes of world/weak"]
    assert missing_parts(config, run_dir, "search") == ["search of world/weak"]


def test_a_cell_without_hidden_states_is_named_and_the_others_finish(tmp_path, caplog):
    import shutil

    config = made_rounds.config()
    run_dir = begin(tmp_path / "runs" / "r", config, n=60)
    shutil.rmtree(run_dir.table_path("layer_sweep", "world", "weak").parent)
    finish(config, run_dir, ["label", "probes", "search"])
    assert "paper mode of world/weak" in caplog.text
    assert missing_parts(config, run_dir, "probes") == ["probes of world/weak"]


def test_episodes_that_a_monitor_ended_are_refused(tmp_path, caplog):
    import pyarrow as pa

    config = made_rounds.config(agents=("able",))
    run_dir = begin(tmp_path / "runs" / "r", config, agents=("able",), n=60)
    episodes = run_dir.read("episodes", "world", "able")
    at = episodes.schema.get_field_index("end")
    ends = ["stopped", *episodes["end"].to_pylist()[1:]]
    changed = episodes.set_column(at, episodes.schema.field(at), pa.array(ends))
    run_dir.write_table("episodes", "world", "able", changed, stage="made", source="other")
    with pytest.raises(UserError, match=r"world/able: .*no outcome \(1 stopped\)"):
        finish(config, run_dir, ["label"])
    told = made_rounds.config(agents=("able",), decide={"drop_stopped": True})
    finish(told, run_dir, ["label"])
    finish(config, run_dir, ["probes"])
    assert "1 stopped" in caplog.text
    assert missing_parts(config, run_dir, "probes") == ["probes of world/able"]


def test_saved_probes_say_what_they_read(config, run_dir):
    probes = load(run_dir.root / "probes" / "world" / "able" / "paper", "stacking")
    assert {part for part, _ in probes.models} == {0, 1, 2, 3, 4}
    assert probes.facts["layer"] == made_rounds.LAYER
    assert probes.facts["columns"][:2] == ["h0", "h1"]
    assert probes.facts["columns"][-1] == "earlier_error_words"
    assert probes.facts["settings"]["error_words"] == ["error", "invalid", "fail"]


@pytest.mark.slow
def test_ray_gives_the_same_tables(config, run_dir, tmp_path, ray_cluster):
    """Scorers as tasks, blocks of seeds as Ray Tune trials, on two workers."""
    from sentinel import tables

    other = begin(tmp_path / "runs" / "r", config, n=N)
    stages = [s for s in config.stages if s not in MADE]
    finish(config, other, stages, ray_cluster)
    for name in ("round_scores_paper", "round_scores_strict", "cascade_rows", "cascade_margins"):
        for agent in ("able", "weak"):
            one, two = (r.read(name, "world", agent) for r in (run_dir, other))
            assert tables.diff(name, one, two) == []
    for mode in ("paper", "strict"):
        a, b = (r.root / "cascade/world/able" / f"{mode}.json" for r in (run_dir, other))
        assert json.loads(a.read_text())["cells"][0]["targets"] is not None
        assert a.read_bytes() == b.read_bytes()


def test_an_agent_may_be_kept_to_some_of_the_benchmarks():
    two = [dict(made_rounds.WORLD), {"name": "other", "kind": "made_rounds:MadeWorld"}]
    plain = {"engine": "transformers", "model": "nano:none"}
    agents = [{"name": "able", **plain}, {"name": "shy", **plain, "benchmarks": ["other"]}]
    config = made_rounds.config(benchmarks=two, agents=agents)
    pairs = [(b.name, a.name) for b, a in config.pairs]
    assert pairs == [("world", "able"), ("other", "able"), ("other", "shy")]
    missing = missing_parts(config, RunDir(Path("/nowhere")), "collect")
    assert missing == [f"collect of {b}/{a}" for b, a in pairs]
    with pytest.raises(UserError, match="work on nothing"):
        made_rounds.config(agents=[{**agents[1], "benchmarks": ["nothing"]}])


def test_a_section_that_contradicts_itself_is_refused():
    for wrong, word in (
        ({"scorers": ["probe", "probe"]}, "each value once"),
        ({"scorers": ["probe"]}, "not among scorers"),
        ({"prompt_price": 0, "generated_price": 0}, "nothing to save"),
        ({"scorers": ["oracle"]}, "oracle"),
        ({"gates": 0}, "gates"),
    ):
        with pytest.raises(UserError, match=word):
            made_rounds.config(cascade=wrong)


def test_a_cluster_is_only_asked_for_what_is_missing(config, run_dir):
    class Idle(Cluster):
        def map(self, name: str, fn: Any, items: Any, **more: Any) -> Any:
            assert list(items) == [], name
            return iter(())

    from jobs import probes, search

    probes.run(config, run_dir, Idle("debug", 1, 0))
    search.run(config, run_dir, Idle("debug", 1, 0))
