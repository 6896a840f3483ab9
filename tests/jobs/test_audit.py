"""The stage audit: resumed, parallel over agents and folds, and honest about what was not run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import made_run
import pytest

from cluster.pool import Cluster
from cluster.run_dir import RunDir
from jobs import audit
from jobs.config import RunConfig
from sentinel import tables
from sentinel.errors import UserError
from sentinel.report.load import load
from sentinel.report.sections import build

SMALL = {"resamples": 30, "permutations": 1, "loop": "off"}
AGENTS = {"steady": made_run.MAKERS["steady"]}


def config(**changes: Any) -> RunConfig:
    """The settings of the made run, with its agent's name."""
    raw: dict[str, Any] = {
        "name": "made",
        "on": "debug",
        "benchmarks": [{"name": "clinic"}],
        "agents": [{"name": "steady", "engine": "transformers", "model": "nano:x"}],
        "heads": {"kind": "tfidf"},
        "audit": SMALL,
    }
    return RunConfig.from_mapping({**raw, **changes})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose heads have scored, audited with one permutation through the loop."""
    root = made_run.make_run(tmp_path_factory.mktemp("audit"), AGENTS, questions=180, decided=False)
    audit.run(config(audit={**SMALL, "loop": "tfidf"}), RunDir(root), Cluster("debug", 1, 0))
    return root


@pytest.fixture
def run_dir(audited: Path, tmp_path: Path) -> RunDir:
    """A copy of that run."""
    return RunDir(shutil.copytree(audited, tmp_path / "runs" / "made"))


def rows(run_dir: RunDir, check: str) -> list[dict[str, Any]]:
    """Rows of a check."""
    return [r for r in run_dir.read("audit", "clinic", "steady").to_pylist() if r["check"] == check]


def stamps(run_dir: RunDir) -> dict[Path, int]:
    """When each Parquet file of the run was written."""
    return {p: p.stat().st_mtime_ns for p in run_dir.root.rglob("*.parquet")}


def test_both_tables_are_there(run_dir: RunDir) -> None:
    screen = run_dir.read("feature_screen", "clinic", "steady")
    assert set(screen["name"].to_pylist()) >= {*tables.FEATURES, "execution", "all"}
    (same,) = rows(run_dir, "duplicates")
    assert same["passed"]
    (loop,) = rows(run_dir, "shuffled-loop")
    assert loop["variant"] == "tfidf"
    assert loop["passed"] is (loop["low"] <= loop["fold_mean"] <= loop["high"])
    folds = [i for i in run_dir.items("audit", "clinic", "steady") if "fold" in i]
    assert len(folds) == loop["folds"] == 5


def test_the_same_again_writes_nothing(run_dir: RunDir) -> None:
    before = stamps(run_dir)
    audit.run(config(audit={**SMALL, "loop": "tfidf"}), run_dir, Cluster("debug", 1, 0))
    assert stamps(run_dir) == before


def test_a_lost_part_is_made_again_alone(run_dir: RunDir) -> None:
    folder = run_dir.parts("audit", "clinic", "steady")
    lost = run_dir.marker_path("audit", "clinic", "steady", "battery")
    lost.unlink()
    before = stamps(run_dir)
    audit.run(config(audit={**SMALL, "loop": "tfidf"}), run_dir, Cluster("debug", 1, 0))
    changed = {p.name for p, at in stamps(run_dir).items() if before.get(p) != at}
    assert changed == {"battery.audit.parquet"}
    assert lost.parent == folder


def test_what_is_not_run_says_so(run_dir: RunDir) -> None:
    """Off again: finished folds are kept, and the table no longer shows them."""
    audit.run(config(), run_dir, Cluster("debug", 1, 0))
    (loop,) = rows(run_dir, "shuffled-loop")
    assert (loop["passed"], loop["fold_mean"]) == (None, None)
    assert loop["note"] == "not run: audit.loop is off"
    assert {r["note"] for r in rows(run_dir, "seed-sd")} == {"not run: audit.seeds is 0"}
    audit.run(config(audit={**SMALL, "seeds": 3}), run_dir, Cluster("debug", 1, 0))
    assert {r["note"] for r in rows(run_dir, "seed-sd")} == {
        "off: a TF–IDF head is the same with every seed"
    }


def test_other_settings_are_refused_with_the_way_out(run_dir: RunDir) -> None:
    with pytest.raises(UserError, match="another configuration"):
        audit.run(config(audit={**SMALL, "resamples": 31}), run_dir, Cluster("debug", 1, 0))


def test_without_prefixes_the_stage_that_makes_them_is_named(run_dir: RunDir) -> None:
    shutil.rmtree(run_dir.parts("heads", "clinic", "steady"))
    with pytest.raises(UserError, match="sentinel heads"):
        audit.run(config(), run_dir, Cluster("debug", 1, 0))


@pytest.mark.parametrize("seeds", [1, 2, -1])
def test_a_spread_needs_three_seeds(seeds: int) -> None:
    with pytest.raises(UserError, match="at least 3"):
        config(audit={"seeds": seeds})


def test_the_page_finds_the_audit_and_an_encoder_rule(run_dir: RunDir) -> None:
    document = {
        "rows": [
            {
                "benchmark": "clinic",
                "agent": "steady",
                "head": "correctness",
                "encoder": "wide",
                "against": "narrow",
                "auroc": 0.889,
                "auroc_against": 0.841,
                "delta": 0.048,
                "adopted": True,
            }
        ]
    }
    (run_dir.root / "encoder_rule.json").write_text(json.dumps(document))
    from sentinel.report import audit as page

    run = load(run_dir.root)
    section = page.section(run)
    assert "checks that can fail have passed" in section.lead or "FAILED" in section.lead
    rule = section.blocks[-1]
    assert rule.data.rows[0]["adopted"] is True
    assert rule.data.rows[0]["low"] is None
    assert "paper" not in {s.id for s in build(run)}  # no monitor: nothing to look up


@pytest.mark.slow
def test_head_seeds_have_a_spread(run_dir: RunDir) -> None:
    """Two more seeds of a small encoder, fold by fold, beside the run's own scores."""
    small = {"kind": "encoder", "width": 32, "layers": 1, "epochs": 1}
    audit.run(config(heads=small, audit={**SMALL, "seeds": 3}), run_dir, Cluster("debug", 1, 0))
    for head in ("correctness", "answerability"):
        found = [r for r in rows(run_dir, "seeds") if r["target"] == head]
        assert [r["variant"] for r in found] == ["seed 0", "seed 1", "seed 2"]
        (spread,) = [r for r in rows(run_dir, "seed-sd") if r["target"] == head]
        assert spread["value"] > 0
        assert spread["n"] == 3


@pytest.mark.slow
def test_ray_finds_the_same(run_dir: RunDir, ray_cluster: Cluster) -> None:
    other = RunDir(run_dir.root.with_name("ray"))
    shutil.copytree(run_dir.root, other.root)
    shutil.rmtree(other.root / "parts" / "audit")
    for name in ("audit", "feature_screen"):
        shutil.rmtree(other.root / "tables" / name)
    audit.run(config(audit={**SMALL, "loop": "tfidf"}), other, ray_cluster)
    for name in ("audit", "feature_screen"):
        mine, theirs = (d.read(name, "clinic", "steady") for d in (run_dir, other))
        assert tables.diff(name, mine, theirs) == []
