"""The run of five local models: its file as it is, and the same file with what ships here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cluster.pool import Cluster
from cluster.run_dir import RunDir
from jobs.__main__ import main
from jobs.config import RunConfig

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "ehrsql-five-local.yaml"
FIVE = ("qwen2.5-coder-7b", "llama-3.1-8b", "phi-4-mini", "qwen2.5-7b", "qwen3-1.7b")
NANO = ("nano-sage", "nano-scout", "nano-hasty", "nano-shy", "nano-novice")


def test_five_models_on_vllm_workers() -> None:
    config = RunConfig.from_file(CONFIG)
    assert tuple(a.name for a in config.agents) == FIVE
    assert {a.engine for a in config.agents} == {"vllm"}
    (benchmark,) = config.benchmarks
    assert (benchmark.name, benchmark.kind) == ("ehrsql-mimic3", "ehrsql")


def test_agents_and_benchmarks_can_be_named_on_the_command_line() -> None:
    config = RunConfig.from_file(CONFIG, ["benchmarks=[clinic]", f"agents=[{','.join(NANO)}]"])
    assert tuple(a.name for a in config.agents) == NANO


@pytest.mark.slow
def test_the_same_file_with_the_embedded_agents(
    ray_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage, on two workers that load one model after the other."""
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "runs" / "five"
    settings = ["benchmarks=[clinic]", f"agents=[{','.join(NANO)}]", "collect.limit=60", "seed=7"]
    settings += ["collect.workers=2", "collect.concurrency=16", "collect.timed_episodes=0"]
    settings += ["heads.kind=tfidf", "heads.folds=2", "bootstrap.resamples=20"]
    assert main(["run", str(CONFIG), *settings, "--run-dir", str(root)]) == 0
    run_dir = RunDir(root)
    rows = run_dir.read("episodes").to_pylist()
    assert Counter(r["agent"] for r in rows) == dict.fromkeys(NANO, 60)
    metrics = [json.loads(x) for x in run_dir.metrics_path.read_text().splitlines()]
    collected = [m for m in metrics if m.get("event") == "collected"]
    assert [m["agent"] for m in collected] == list(NANO)
    assert all(min(m["by_replica"]) > 0 for m in collected), "every worker ran episodes"
    assert run_dir.report_path.exists()
