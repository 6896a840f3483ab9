"""The stage from turns to hidden states: layers chosen, parts resumed, bad cells named."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hidden_run
import numpy as np
import pytest
from hidden_run import BENCHMARK, ROUNDS, agent, config

from cluster.activation_tables import chosen_layer, read_vectors
from cluster.engines import agent_hash
from cluster.head_stages import Where
from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from sentinel import tables
from sentinel.activations.positions import passes
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def debug() -> Iterator[Cluster]:
    with open_cluster("debug", cpus=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hidden_run.small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path) -> RunDir:
    """One uninterrupted run in a plain loop: an agent, and one whose prompts never extend."""
    run_dir = RunDir(tmp_path_factory.mktemp("finished"))
    agents = [agent("a", model), agent("broken", model)]
    hidden_run.write(run_dir, agents, broken=("broken",))
    with open_cluster("debug", cpus=1) as cluster:
        return hidden_run.run(config(agents), run_dir, cluster)


def where(run_dir: RunDir, name: str = "a") -> Where:
    return Where(str(run_dir.root), BENCHMARK, name)


def metrics(run_dir: RunDir, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(x) for x in run_dir.metrics_path.read_text().splitlines()]
    return [m for m in lines if m.get("event") == event]


def reference(model: Path, name: str, layer: int) -> dict[tuple[str, int], np.ndarray]:
    """Each turn by a forward pass of its own, through the library."""
    import torch
    import transformers

    whole = transformers.AutoModelForCausalLM.from_pretrained(model).eval()
    whole.config.tie_last_hidden_states = False
    found = {}
    for number in range(hidden_run.TASK_COUNT):
        turns = hidden_run.made_turns(name, f"t{number:03d}", number % 5 < 2)
        for one in passes(turns[0].episode_id, turns, ROUNDS):
            for r, at in zip(one.rounds, one.positions, strict=True):
                ids = torch.tensor(one.ids[None, : at + 1].astype(np.int64))
                with torch.inference_mode():
                    states = whole(ids, output_hidden_states=True).hidden_states
                found[one.episode, r] = states[layer][0, -1].numpy()
    return found


def test_every_round_has_the_state_that_a_pass_of_its_own_gives(
    finished: RunDir, model: Path
) -> None:
    for name in ("a", "broken"):
        for layer in {chosen_layer(where(finished, name), m) for m in ("paper", "strict")}:
            expected = reference(model, name, layer)
            found = read_vectors(where(finished, name), layer)
            assert found.keys() == expected.keys()
            for key, vector in found.items():
                assert vector.dtype == np.float16
                np.testing.assert_allclose(vector, expected[key], rtol=2**-10, atol=1e-4)
    whole, broken = (
        next(m for m in metrics(finished, "extracted") if m["agent"] == n and m["part"] == p)
        for n, p in (("a", "activations-sweep"), ("broken", "activations-sweep"))
    )
    assert whole["passes"] < broken["passes"] == broken["rows"], "one pass, or one per turn"


def test_rounds_beyond_the_last_gate_are_not_extracted(finished: RunDir) -> None:
    turns = finished.read("turns", BENCHMARK, "a")["turn"].to_pylist()
    found = finished.read("activations", BENCHMARK, "a")
    assert max(turns) > ROUNDS == max(found["turn"].to_pylist())
    layers = set(found["layer"].to_pylist())
    assert found.num_rows == len(layers) * sum(t <= ROUNDS for t in turns)


def test_the_sweep_measures_every_layer_on_its_share_and_names_one(finished: RunDir) -> None:
    sweep = finished.read("layer_sweep", BENCHMARK, "a").to_pylist()
    assert {(r["mode"], r["layer"]) for r in sweep} == {
        (m, k) for m in ("paper", "strict") for k in (1, 2)
    }
    first = [r for r in sweep if r["round"] == 1]
    assert {r["mode"]: r["episodes"] for r in first} == {"paper": 48, "strict": 15}
    assert all(r["auc"] > 0.7 for r in first if r["mode"] == "paper"), "there is a signal"
    for mode in ("paper", "strict"):
        assert len({r["layer"] for r in sweep if r["mode"] == mode and r["chosen"]}) == 1
    # Of the sweep's episodes only, and copied from there: what is swept is not run again.
    swept = {e for _, t in finished.read_parts("activations-sweep", BENCHMARK, "a", "layer-001")
             for e in t["episode_id"].to_pylist()}  # fmt: skip
    assert 48 <= len(swept) < hidden_run.TASK_COUNT
    ran = {m["part"]: m["rows"] for m in metrics(finished, "extracted") if m["agent"] == "a"}
    every = sum(t <= ROUNDS for t in finished.read("turns", BENCHMARK, "a")["turn"].to_pylist())
    assert sum(ran.values()) == every


def test_a_finished_stage_does_nothing_more(finished: RunDir, model: Path, debug: Cluster) -> None:
    files = [p for p in finished.root.rglob("*") if p.is_file() and "tables" in p.parts]
    files += list(finished.root.rglob("*.done.json"))
    before = {p: p.stat().st_mtime_ns for p in files}
    agents = [agent("a", model), agent("broken", model)]
    hidden_run.run(config(agents, tokens_per_batch=100, device="cpu"), finished, debug)
    assert {p: p.stat().st_mtime_ns for p in files} == before


def test_two_workers_give_the_numbers_of_one(
    ray_cluster: Cluster, finished: RunDir, model: Path, tmp_path: Path
) -> None:
    run_dir = RunDir(tmp_path)
    agents = [agent("a", model), agent("broken", model)]
    hidden_run.write(run_dir, agents, broken=("broken",))
    hidden_run.run(config(agents), run_dir, ray_cluster)
    for name in ("activations", "layer_sweep"):
        for one in ("a", "broken"):
            left, right = run_dir.read(name, BENCHMARK, one), finished.read(name, BENCHMARK, one)
            assert left.equals(right), "to the last bit"


def test_one_named_layer_needs_no_sweep_and_several_are_compared(
    model: Path, tmp_path: Path, debug: Cluster
) -> None:
    run_dir = RunDir(tmp_path / "one")
    hidden_run.write(run_dir, [agent("a", model)])
    hidden_run.run(config([agent("a", model)], layers=[2]), run_dir, debug)
    assert set(run_dir.read("activations", BENCHMARK, "a")["layer"].to_pylist()) == {2}
    assert chosen_layer(where(run_dir), "strict") == 2
    assert not run_dir.parts("activations-sweep", BENCHMARK, "a").exists()
    several = RunDir(tmp_path / "several")
    hidden_run.write(several, [agent("a", model)])
    hidden_run.run(config([agent("a", model)], layers=[2, 1]), several, debug)
    swept = several.read("layer_sweep", BENCHMARK, "a").to_pylist()
    assert {r["layer"] for r in swept} == {1, 2}


def test_a_bad_cell_is_named_and_the_others_finish(
    model: Path, tmp_path: Path, debug: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Other weights, no ids, a window that is too small, no such layer, folds of one class."""
    run_dir = RunDir(tmp_path / "run")
    changed = hidden_run.small_model(tmp_path / "changed", seed=1)
    narrow = hidden_run.small_model(tmp_path / "narrow")
    narrow_config = json.loads((narrow / "config.json").read_text())
    narrow_config["max_position_embeddings"] = 40
    (narrow / "config.json").write_text(json.dumps(narrow_config))
    agents = [
        agent("good", model),
        agent("changed", changed),
        agent("api", model),
        agent("narrow", narrow),
        agent("alike", model),
    ]
    hidden_run.write(run_dir, agents)
    hidden_run.small_model(changed, seed=2)
    turns = run_dir.read("turns", BENCHMARK, "api").to_pylist()
    bare = [{**t, "prompt_ids": None, "generated_ids": None} for t in turns]
    labels = run_dir.read("labels", BENCHMARK, "alike").to_pylist()
    for name, one, rows in (
        ("turns", "api", bare),
        ("labels", "alike", [{**r, "correct": False} for r in labels]),
    ):
        table = tables.ALL[name].from_rows(rows)
        run_dir.write_table(name, BENCHMARK, one, table, stage="made", source="other")

    with caplog.at_level(logging.ERROR):
        hidden_run.run(config(agents), run_dir, debug)
    causes = {m["agent"]: m["cause"] for m in metrics(run_dir, "refused")}
    assert causes.keys() == {"changed", "api", "narrow", "alike"}
    assert "weights or settings of agent changed are not those" in causes["changed"]
    assert "made/api/t000/0 has no token ids in turn 1" in causes["api"]
    assert "the model's window is 40" in causes["narrow"]
    assert "of 48 tasks 0 hold successes" in causes["alike"]
    for name, cause in causes.items():
        assert f"activations of made/{name}: {cause}" in caplog.text
    done = {
        n for n in ("good", *causes) if run_dir.table_path("activations", BENCHMARK, n).exists()
    }
    assert done == {"good"}

    with caplog.at_level(logging.ERROR):
        hidden_run.run(config([agent("good", model)], layers=[9]), run_dir, debug)
    assert "no layer 9: layer k is the output of block k, and this model has blocks 1…2" in (
        caplog.text
    )


def test_changed_work_is_refused_with_the_ways_out(
    model: Path, tmp_path: Path, debug: Cluster
) -> None:
    run_dir = RunDir(tmp_path)
    hidden_run.write(run_dir, [agent("a", model)])
    hidden_run.run(config([agent("a", model)], layers=[1]), run_dir, debug)
    before = run_dir.read("activations", BENCHMARK, "a")
    hidden_run.run(config([agent("a", model)], layers=[2]), run_dir, debug)
    (refused,) = metrics(run_dir, "refused")
    assert "was finished with another configuration" in refused["cause"]
    assert run_dir.read("activations", BENCHMARK, "a").equals(before)


def test_readers_say_what_to_run_first(tmp_path: Path) -> None:
    for read in (
        lambda: read_vectors(where(RunDir(tmp_path)), 1),
        lambda: chosen_layer(where(RunDir(tmp_path)), "paper"),
    ):
        with pytest.raises(UserError):
            read()


def test_other_settings_of_the_same_weights_are_another_agent(model: Path) -> None:
    one, other = (
        config([agent("a", model, dtype=d)]).agents[0].model_dump(exclude_none=True)
        for d in ("float32", "float64")
    )
    assert agent_hash(one) != agent_hash(other)


@pytest.mark.slow
def test_sigkill_in_the_middle_loses_nothing(model: Path, tmp_path: Path, debug: Cluster) -> None:
    """The driver dies, its Ray with it; what was committed is kept and nothing else is missing."""
    agents, settings = [agent("a", model)], config([agent("a", model)], layers=[1])
    whole, run_dir = RunDir(tmp_path / "whole"), RunDir(tmp_path / "killed")
    for one in (whole, run_dir):
        hidden_run.write(one, agents)
    hidden_run.run(settings, whole, debug, part=2)
    path = [str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    said = tmp_path / "driver.log"
    with said.open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, hidden_run.__file__, str(run_dir.root), str(model)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,
            stdout=log,
            stderr=log,
        )
    parts = run_dir.parts("activations", BENCHMARK, "a")
    deadline = time.monotonic() + 250
    try:
        while len(list(parts.glob("*.done.json"))) < 3:
            assert driver.poll() is None, said.read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        driver.kill()
        driver.wait()
    kept = {p: p.stat().st_mtime_ns for p in run_dir.root.rglob("*.done.json")}
    assert not run_dir.table_path("activations", BENCHMARK, "a").exists()
    assert len(kept) < hidden_run.TASK_COUNT // 2
    hidden_run.run(settings, run_dir, debug, part=2)
    assert {p: p.stat().st_mtime_ns for p in kept} == kept, "nothing finished was done again"
    for name in ("activations", "layer_sweep"):
        left, right = (r.read(name, BENCHMARK, "a") for r in (run_dir, whole))
        assert left.equals(right), "to the last bit"
