"""Which tables say that an agent's stage is complete."""

from __future__ import annotations

from cluster.run_dir import RunDir
from jobs.config import STAGES, RunConfig
from jobs.results import RESULT, missing_parts

RAW = {
    "name": "small",
    "benchmarks": [{"name": "w"}],
    "agents": [{"name": n, "engine": "transformers", "model": "m"} for n in ("a", "b")],
}


def test_missing_parts_are_named_per_agent(tmp_path):
    config, run_dir = RunConfig.from_mapping(RAW), RunDir(tmp_path / "out")
    assert missing_parts(config, run_dir, "collect") == ["collect of w/a", "collect of w/b"]
    path = run_dir.table_path(RESULT["collect"], "w", "a")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert missing_parts(config, run_dir, "collect") == ["collect of w/b"]
    assert missing_parts(config, run_dir, "report")


def test_every_stage_has_a_result():
    assert {*RESULT, "report"} == set(STAGES)
