"""Encoder heads in the stage: ids made once, and the shared encoder beside the pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_episodes import made_collection

import jobs.heads
import jobs.label
from cluster.head_stages import Where, read_snapshots
from cluster.head_tokens import read_tokens
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig
from sentinel.heads.model import head_tokenizer
from sentinel.heads.tokens import tokenize

SMALL = {"width": 16, "layers": 1, "epochs": 1, "folds": 5, "validation": 0.2}


def config(**heads: Any) -> RunConfig:
    agents = [{"name": n, "engine": "transformers", "model": f"nano:{n}"} for n in ("steady",)]
    return RunConfig.from_mapping(
        {
            "name": "mini",
            "on": "debug",
            "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
            "agents": agents,
            "heads": SMALL | heads,
        }
    )


def run(run_dir: RunDir, settings: RunConfig) -> None:
    with open_cluster("debug", 1) as cluster:
        jobs.heads.run(settings, run_dir, cluster)


def events(run_dir: RunDir, name: str) -> list[dict[str, Any]]:
    lines = run_dir.metrics_path.read_text().splitlines()
    return [m for m in map(json.loads, lines) if m.get("event") == name]


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    run_dir = RunDir(tmp_path / "run")
    run_dir.prepare({})
    made_collection(run_dir)
    with open_cluster("debug", 1) as cluster:
        jobs.label.run(config(), run_dir, cluster)
    return run_dir


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_shared_encoder_stands_beside_the_pair(run_dir: RunDir) -> None:
    run(run_dir, config())
    pair = run_dir.read("scores", "made", "steady")
    assert not run_dir.table_path("shared_scores", "made", "steady").exists()
    run(run_dir, config(shared=True))  # only what is missing
    assert len(events(run_dir, "fit")) == 12 + 6
    assert run_dir.read("scores", "made", "steady").equals(pair)

    shared = run_dir.read("shared_scores", "made", "steady")
    keys = ["episode_id", "t", "head", "fold", "truncated"]
    assert shared.select(keys).equals(pair.select(keys))
    assert shared["logit"].null_count == 0
    assert shared["logit"].to_pylist() != pair["logit"].to_pylist()
    rows = events(run_dir, "shared_encoder")
    assert [r["head"] for r in rows] == ["answerability", "correctness"]
    assert all(0 <= r["auroc_shared"] <= 1 and r["n"] > 20 for r in rows)
    run(run_dir, config(shared=True))
    assert len(events(run_dir, "shared_encoder")) == 2
    assert len(events(run_dir, "fit")) == 18

    # The ids were made once, and are what a fold would have made itself.
    where = Where(str(run_dir.root), "made", "steady")
    tokens = read_tokens(where, {"kind": "encoder"})
    settings = HeadConfig.of(jobs.heads.head_settings(config(), "made"))
    snapshots = read_snapshots(where)
    again = tokenize(head_tokenizer(settings)[0], snapshots.text.tolist())
    assert tokens is not None
    assert tokens.ids.tolist() == again.ids.tolist()
    assert tokens.starts.tolist() == again.starts.tolist()
    (questions,) = (t for _, t in run_dir.read_parts("heads", "made", None, "questions"))
    known = questions["text"].to_pylist()
    assert set(snapshots.text[snapshots.t == 0]) <= set(known)
    assert len(known) == 2 * run_dir.read("tasks", "made").num_rows


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_folds_read_ids_and_never_a_tokenizer(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentinel.heads import lines

    calls: list[int] = []
    whole = lines.LineTokens.learn

    def counted(self: Any, pieces: Any) -> None:
        calls.append(len(pieces))
        whole(self, pieces)

    monkeypatch.setattr(lines.LineTokens, "learn", counted)
    run(run_dir, config(folds=5))
    assert len(calls) == 2  # the questions, and the agent's prefixes: not once per head and fold


def test_tfidf_has_no_encoder_to_share(run_dir: RunDir) -> None:
    with pytest.raises(UserError, match=r"heads\.shared"):
        run(run_dir, config(kind="tfidf", shared=True))


def test_without_an_encoder_nothing_is_tokenised(run_dir: RunDir) -> None:
    run(run_dir, config(kind="tfidf"))
    assert not list(run_dir.read_parts("heads", "made", None, "questions"))
    assert not list(run_dir.read_parts("heads", "made", "steady", "tokens"))
