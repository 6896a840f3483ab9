"""Which table is the result of a stage, and which agents have it; from files alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.config import RunConfig

if TYPE_CHECKING:
    from cluster.run_dir import RunDir

RESULT = {
    "collect": "episodes",
    "label": "labels",
    "judge": "judgements",
    "activations": "activations",
    "heads": "scores",
    "audit": "audit",
    "probes": "round_scores_*",
    "calibrate": "decisions",
    "search": "cascade_rows",
    "bootstrap": "intervals",
}
"""The table by whose presence an agent's stage is complete; `*`: one per mode of the cascade."""


def missing_parts(config: RunConfig, run_dir: RunDir, stage: str) -> list[str]:
    """`stage of benchmark/agent` for every agent without this stage's table; from files alone."""
    if stage == "report":
        return [] if run_dir.report_path.exists() else [f"report ({run_dir.report_path})"]
    return [
        f"{stage} of {benchmark.name}/{agent.name}"
        for benchmark, agent in config.pairs
        if not has_result(config, run_dir, stage, benchmark.name, agent.name)
    ]


def has_result(config: RunConfig, run_dir: RunDir, stage: str, benchmark: str, agent: str) -> bool:
    """Whether an agent has the tables of a stage; from files alone."""
    if stage == "judge":
        from jobs import judge

        return judge.is_complete(config, run_dir, benchmark, agent)
    name = RESULT[stage]
    names = [name.replace("*", mode) for mode in config.cascade.modes] if "*" in name else [name]
    return all(run_dir.table_path(n, benchmark, agent).exists() for n in names)
