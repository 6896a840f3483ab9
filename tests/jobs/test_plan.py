import contextlib
import io
import json

import pytest
import yaml
from api_server import Answer, said, serve

from cluster.engines.openai_spend import SpendReader
from cluster.forecast import known_rates
from jobs.__main__ import main
from jobs.config import RunConfig
from jobs.plan import plan
from jobs.resources import read_plan, resources

CONFIG = """
name: small
benchmarks: [{from: clinic, n_questions: 200}]
agents: [nano-hasty]
monitors: [sentinel]
"""


SETTINGS = ["site=slurm", "collect.workers=1"]


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The folder of a config, what was planned for it from a real pilot, and what was printed."""
    folder = tmp_path_factory.mktemp("planned")
    path = folder / "small.yaml"
    path.write_text(CONFIG)
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        assert main(["plan", str(path), "--episodes", "3", *SETTINGS]) == 0
    return folder, json.loads((folder / "runs/small/plan.json").read_text()), out.getvalue()


def test_a_plan_from_a_real_pilot(planned):
    _, found, told = planned
    (agent,) = found["agents"]
    assert agent["episodes"] == 200
    assert agent["pilot"]["episodes"] == 3
    assert agent["generated_tokens"]["mean"] > 0
    assert agent["gpu_hours"] == 0
    assert agent["dollars"] is None
    assert agent["memory"]["wanted_gb"] >= agent["memory"]["least_gb"] > 0.5
    assert found["collect"]["memory_mb"] >= agent["pilot"]["peak_mb"]
    assert found["heads"]["hours"] > 0
    assert found["audit"]["hours"] > 0
    assert "?" not in told, "every stage of this run was measured"
    assert "clinic/nano-hasty" in told


def test_slurm_is_asked_for_what_was_planned(planned):
    folder, found, _ = planned
    run = RunConfig.from_file(folder / "small.yaml", [*SETTINGS, "on=slurm"])
    plan = read_plan(folder / "runs/small")
    collect = resources(run, "collect", plan)
    assert collect.memory_mb == found["collect"]["memory_mb"] != resources(run, "collect").memory_mb
    assert collect.cpus == found["collect"]["cpus"] == 4, "the job's CPUs, not this machine's"
    assert collect.gpus == 0
    assert collect.hours == max(1 / 6, 2 * found["collect"]["hours"])
    heads = {**plan["heads"], "memory_mb": None, "hours": None}
    unknown = resources(run, "heads", {**plan, "heads": heads})
    assert (unknown.memory_mb, unknown.hours) == (8000, run.site.hours)


def api(url, **collect):
    """A run of one priced API agent."""
    price = {"prompt": 1000.0, "generated": 10_000.0}
    return {
        "name": "api",
        "benchmarks": [{"from": "clinic", "n_questions": 200}],
        "agents": [
            {"name": "m", "engine": "openai", "model": "m", "base_url": url, "price": price}
        ],
        "collect": {"max_tokens": 20, **collect},
    }


def answers(_, asked):
    first = not any(m["role"] == "assistant" for m in asked["messages"])
    return Answer(said("SQL: select 1" if first else "FINAL_SQL: select 1"))


def test_the_pilot_of_an_api_is_paid_from_the_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "api.yaml"
    with serve(answers) as server:
        path.write_text(yaml.safe_dump(api(server.url, budget_usd=9.0)))
        assert main(["plan", str(path), "--episodes", "3"]) == 0
        sent = len(server.requests)
        spent = SpendReader(tmp_path / "runs/api/spend").total()
        assert spent == pytest.approx(sent * 0.2)
        (agent,) = json.loads((tmp_path / "runs/api/plan.json").read_text())["agents"]
        assert agent["dollars"]["mean"] == pytest.approx(200 * 2 * 0.2)
        told = capsys.readouterr().out
        assert f"${spent:.4f} of $9.00; the plan wants ${spent + 80 - 9:.2f} more" in told

        path.write_text(yaml.safe_dump(api(server.url, budget_usd=spent)))
        assert main(["plan", str(path), "--episodes", "3"]) == 2
        assert "raise collect.budget_usd" in capsys.readouterr().err
        assert len(server.requests) == sent, "nothing is asked that nothing is left for"


def test_a_budget_that_ends_in_a_pilot_leaves_what_was_finished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with serve(answers) as server:
        run = RunConfig.from_mapping(api(server.url, budget_usd=2.0, concurrency=1))
        found = plan(run, tmp_path / "r", 8, known_rates())
        assert len(server.requests) <= 10
    assert 1 <= found["agents"][0]["pilot"]["episodes"] < 8
    assert found["collect"]["gpus"] == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--episodes", "0"], "at least one"),
        (["--rates", "none.json"], "no rates in none.json"),
        (["--learn", "rates.json"], "no finished stage"),
    ],
)
def test_what_cannot_be_planned_is_named(config, argv, says, capsys):
    assert main(["plan", str(config), *argv]) == 2
    assert says in capsys.readouterr().err
