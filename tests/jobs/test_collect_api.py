"""Collection from an API: a budget that stops a run and a larger one that resumes it; keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import Answer, fault, said, serve

from cluster.engines.openai_spend import SpendReader
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from jobs.stages import run_stages
from sentinel.errors import UserError

QUESTIONS = 70
BILL = (100 * 1000.0 + 10 * 10_000.0) / 1e6
"""Dollars of one reply of the server below."""
KEY = "sk-0123456789abc"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("MY_KEY", KEY)
        yield


def config(
    url: str, budget: float | None = None, names: tuple[str, ...] = ("one",), **agent: Any
) -> RunConfig:
    api = {"engine": "openai", "model": "m", "base_url": url, "api_key_env": "MY_KEY",
           "price": {"prompt": 1000.0, "generated": 10_000.0}, **agent}  # fmt: skip
    return RunConfig.from_mapping(
        {
            "name": "t",
            "on": "debug",
            "benchmarks": [{"name": "clinic", "kind": "clinic", "n_questions": 160,
                            "patients": 300}],
            "agents": [{"name": name, **api} for name in names],
            "collect": {"limit": QUESTIONS, "concurrency": 4, "max_tokens": 20,
                        **({"budget_usd": budget} if budget else {})},
            "heads": {"folds": 2},
        }
    )  # fmt: skip


def two_turns(_: int, asked: dict[str, Any]) -> Answer:
    """A query, then an answer."""
    first = not any(m["role"] == "assistant" for m in asked["messages"])
    return Answer(said("SQL: select 1" if first else "FINAL_SQL: select 1"))


@pytest.mark.slow
def test_a_budget_stops_the_run_and_a_larger_one_resumes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, both = RunDir(tmp_path / "r"), ("one", "two")
    most = 2 * QUESTIONS + 30  # all of the first agent's replies, a few of the second's
    with serve(two_turns) as server:
        tight = config(server.url, most * BILL, both)
        assert run_stages(tight, run_dir.root, ("collect",)) == 3
        told = capsys.readouterr().err
        assert "raise collect.budget_usd and run again" in told
        assert "collect of clinic/two" in told, "what is missing is named"
        assert "collect of clinic/one" not in told
        spent = SpendReader(run_dir.root / "spend").total()
        sent = len(server.requests)
        assert spent == pytest.approx(sent * BILL)
        assert most - 12 < sent <= most, "within the budget, and most of it"

        assert run_stages(tight, run_dir.root, ("collect",)) == 3
        assert len(server.requests) <= most, "what was spent is remembered"

        ample = config(server.url, 9999.0, both)
        assert run_stages(ample, run_dir.root, ("collect",)) == 0
    rows = run_dir.read("episodes").to_pylist()
    assert len(rows) == 2 * QUESTIONS
    assert {r["end"] for r in rows} == {"answered"}
    assert all(r["cost_usd"] == pytest.approx(2 * BILL) for r in rows), "charged once"
    total = SpendReader(run_dir.root / "spend").total()
    assert total == pytest.approx(len(server.requests) * BILL)
    assert KEY not in "".join(p.read_text() for p in run_dir.logs.glob("*.log"))
    assert json.loads(run_dir.env_path.read_text())["templates"] == {}


@pytest.mark.slow
def test_mixed_faults_give_the_same_episodes(tmp_path: Path) -> None:
    bad = [fault(500), fault(429), Answer(b"{"), Answer(said(None)), Answer(said(), cut=9)]

    def unsteady(number: int, asked: dict[str, Any]) -> Answer:
        return bad[number % 5] if number % 11 < 1 else two_turns(number, asked)

    with serve(two_turns) as calm, serve(unsteady) as server:
        assert run_stages(config(calm.url), tmp_path / "calm", ("collect",)) == 0
        assert run_stages(config(server.url), tmp_path / "r", ("collect",)) == 0
    tables = [RunDir(tmp_path / name).read("turns") for name in ("calm", "r")]
    texts = [t.select(["episode_id", "turn", "text", "kind"]).to_pylist() for t in tables]
    assert texts[0] == texts[1], "nothing lost, each its own answer"
    assert len(server.requests) > len(calm.requests)


def test_a_key_that_is_refused_or_missing_stops_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(two_turns, fault(401, "Incorrect API key")) as server:
        with pytest.raises(UserError, match=r"refused the key in \$MY_KEY"):
            run_stages(config(server.url), tmp_path / "r", ("collect",))
        monkeypatch.delenv("MY_KEY")
        with pytest.raises(UserError, match=r"no API key in \$MY_KEY"):
            run_stages(config(server.url), tmp_path / "r", ("collect",))
        assert server.requests == []


def test_a_key_that_is_refused_in_the_middle_keeps_what_is_finished(tmp_path: Path) -> None:
    def revoked(number: int, asked: dict[str, Any]) -> Answer:
        return two_turns(number, asked) if number < 30 else fault(401, "revoked")

    run_dir = RunDir(tmp_path / "r")
    with serve(revoked) as server:
        with pytest.raises(UserError, match=r"refused the key in \$MY_KEY.*revoked"):
            run_stages(config(server.url), run_dir.root, ("collect",))
        asked = len(server.requests)
    with serve(two_turns) as server:
        agent = config(server.url)
        # The server moved: what an agent answers is bound to its address.
        with pytest.raises(UserError, match="agent changed"):
            run_stages(agent, run_dir.root, ("collect",))
    finished = [json.loads(x) for p in run_dir.root.glob("parts/collect/agent=one/*.jsonl")
                for x in p.read_text().splitlines()]  # fmt: skip
    assert {e["end"] for e in finished} == {"answered"}
    assert 10 <= len(finished) <= 15
    assert asked <= 30 + 2 * 4, "no retry of a refused key"


def test_a_budget_needs_prices() -> None:
    with pytest.raises(UserError, match=r"collect.budget_usd needs the price of: one, two"):
        config("http://127.0.0.1:9/v1", 1.0, ("one", "two"), price=None)
