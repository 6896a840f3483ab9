"""Small versions of the shipped runs with real agents: the cascade's demo, and the matrix."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from jobs import __main__ as cli
from sentinel.probes import monitor

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SMALL = [
    *("cascade.seeds=3", "bootstrap.resamples=100", "activations.sweep_share=1.0"),
    *("cascade.strict_targets=[0.8]", "cascade.targets=[0.85]"),
]
WEIGHTS = Path(__file__).resolve().parents[2] / "sentinel" / "nano" / "weights"
needs_craft = pytest.mark.skipif(
    not (WEIGHTS / "craft-mason").is_dir(), reason="no weights of the crafting agents"
)


def run(config: str, root: Path, *settings: str) -> int:
    argv = ["run", str(CONFIGS / config), *SMALL, *settings]
    return cli.main([*argv, "--run-dir", str(root), "--on", "debug"])


def rows(root: Path, name: str) -> list[dict[str, str]]:
    with (root / "report" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@needs_craft
@pytest.mark.slow
def test_the_cascades_demo_in_small(tmp_path, capsys):
    root = tmp_path / "runs" / "demo"
    agents = "agents=[nano-craft-mason,nano-craft-tinker]"
    assert run("demo-cascade.yaml", root, agents, "collect.limit=80") == 0
    for agent in ("nano-craft-mason", "nano-craft-tinker"):
        facts = json.loads((root / "probes/craft" / agent / "paper/probe.json").read_text())
        assert facts["layer"] >= 1
        assert facts["rounds"][0]["alive"] == 80
        frozen = monitor.read(root / "monitor" / "craft" / agent / "cascade")
        assert list(frozen.policies) == ["0.8"]
    found = rows(root, "round_auroc")
    assert {r["statistic"] for r in found} >= {"failure_auroc", "failure_auroc_matched_gain"}
    assert {r["scorer"] for r in rows(root, "scorer_ablation")} == {
        *("probe", "surface", "stacking", "heads", "task", "random")
    }
    capsys.readouterr()
    place = "benchmark=craft/agent=nano-craft-tinker/part.parquet"
    argv = ["cascade", str(root / "tables/round_scores_paper" / place)]
    settings = ["--mode", "paper", "--target", "0.85", "0.95", "--seeds", "3", "--json"]
    assert cli.main([*argv, *settings]) == 0
    written = root / "cascade/craft/nano-craft-tinker/paper.json"
    assert capsys.readouterr().out == written.read_text()


@needs_craft
@pytest.mark.slow
def test_every_monitor_on_every_benchmark_in_small(tmp_path):
    root = tmp_path / "runs" / "matrix"
    agents = (
        "agents=[{from: nano-scout, benchmarks: [clinic]},"
        " {from: nano-craft-tinker, benchmarks: [craft]}]"
    )
    scorers = "cascade.scorers=[probe,surface,stacking,task]"
    few = "benchmarks=[{from: clinic, n_questions: 300}, {from: craft, n_tasks: 110}]"
    assert run("matrix.yaml", root, few, agents, scorers, "heads.folds=2") == 0
    found = rows(root, "every_monitor")
    kinds = {(r["benchmark"], r["monitor"].split()[0].rstrip(",")) for r in found}
    assert kinds == {(b, m) for b in ("clinic", "craft") for m in ("cascade", "sentinel")}
    off = {(r["benchmark"], r["monitor"].split()[0].rstrip(",")): r["off"] for r in found}
    assert "answerability head" in off["craft", "sentinel"]
    assert "answerability head" not in off["clinic", "sentinel"]
    assert off["clinic", "cascade"].startswith("matching by depth")
    assert off["craft", "cascade"] == ""
    page = (root / "report.html").read_text()
    assert "on craft success, the environment" in page
