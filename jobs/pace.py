"""`sentinel pace`: seconds per step of a serial timed rerun, for the time that stops save.

Some train questions are asked again, one after the other, on an otherwise idle machine; nothing of
the rerun is kept but its time. `sentinel bootstrap` and `sentinel report` then print serial time
saved per agent, unless `decide.seconds_per_step` names a figure of its own.
"""

from __future__ import annotations

import argparse
import socket
from typing import TYPE_CHECKING

from cluster import files
from jobs.run import add_config_arguments, load
from sentinel.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.pace import PaceItem
    from cluster.replica import Plan
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from jobs.sections import AgentConfig, BenchmarkConfig

EPISODES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG or --run-dir, as for a stage, and how many episodes are timed."""
    add_config_arguments(parser)
    parser.add_argument(
        "--episodes", type=int, default=EPISODES, help="timed per agent (default: %(default)s)"
    )


def main(args: argparse.Namespace) -> int:
    """Time every agent that was collected, print and keep its seconds per step."""
    from cluster.run_dir import RunDir

    if args.episodes < 1:
        raise UserError(f"--episodes {args.episodes}", "time at least one episode")
    config, root = load(args)
    run_dir = RunDir(root)
    if not run_dir.config_path.exists():
        raise UserError(f"nothing was collected in {root}", f"sentinel collect --run-dir '{root}'")
    with run_dir.lock():
        run(config, run_dir, args.episodes)
    print(f"next: sentinel bootstrap --run-dir '{root}', then sentinel report")
    return 0


def run(
    config: RunConfig, run_dir: RunDir, episodes: int = EPISODES, *, again: bool = True
) -> None:
    """One agent after the other, in this process; agents without episodes are left out.

    `again=False` leaves those alone whose figure is there.
    """
    from cluster.pace import measure

    for benchmark in config.benchmarks:
        for agent in config.agents:
            if not run_dir.table_path("episodes", benchmark.name, agent.name).exists():
                continue
            if not again and seconds_per_step(run_dir, benchmark.name, agent.name) is not None:
                continue
            found = measure(_item(config, run_dir, benchmark, agent, episodes))
            if not found["steps"]:
                raise UserError(
                    f"no timed episode of {benchmark.name}/{agent.name} had an outcome",
                    "check its engine: sentinel doctor CONFIG",
                )
            found |= {"seconds_per_step": found["seconds"] / found["steps"]}
            found |= {"host": socket.gethostname()}
            files.write_json(pace_path(run_dir, benchmark.name, agent.name), found)
            run_dir.metric("pace", benchmark=benchmark.name, agent=agent.name, **found)
            print(
                f"{benchmark.name}/{agent.name}: {found['seconds_per_step']:.4f} s per step "
                f"({found['steps']} steps, {found['episodes']} episodes, one at a time)"
            )


def pace_path(run_dir: RunDir, benchmark: str, agent: str) -> Path:
    """Where the figure of an agent is kept."""
    folder = run_dir.root / "pace" / files.safe_name(benchmark)
    return folder / f"{files.safe_name(agent)}.json"


def seconds_per_step(run_dir: RunDir, benchmark: str, agent: str) -> float | None:
    """The measured seconds per step; None without a rerun."""
    found = files.read_json(pace_path(run_dir, benchmark, agent)) or {}
    value = found.get("seconds_per_step")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def agent_plan(
    config: RunConfig, benchmark: BenchmarkConfig, agent: AgentConfig, root: Path | None = None
) -> Plan:
    """What one replica needs to run this agent, as collection gives it."""
    from cluster.engines import agent_hash
    from cluster.replica import Plan
    from jobs.machine import visible_gpus
    from jobs.tasks import cache_dir

    mapping = agent.model_dump(exclude_none=True)
    if mapping["device"] == "auto":
        mapping["device"] = "cuda" if visible_gpus() and agent.engine != "openai" else "cpu"
    collect = config.collect
    if agent.engine == "openai" and root is not None:  # paid from the run's budget
        mapping["spend_dir"] = str(root / "spend")
        if collect.budget_usd is not None:
            mapping["budget_usd"] = collect.budget_usd
    return Plan(
        run_root="" if root is None else str(root),
        cache=str(cache_dir()),
        benchmark=benchmark.mapping(),
        agent=mapping,
        agent_hash=agent_hash(mapping),
        max_tokens=collect.max_tokens if agent.max_tokens is None else agent.max_tokens,
        temperature=collect.temperature,
        seed=config.seed,
    )


def _item(
    config: RunConfig,
    run_dir: RunDir,
    benchmark: BenchmarkConfig,
    agent: AgentConfig,
    episodes: int,
) -> PaceItem:
    import numpy as np

    from cluster.pace import PaceItem
    from cluster.ray_runtime import available_cpus
    from jobs.tasks import opened

    rows = run_dir.read("tasks", benchmark.name).select(["task_id", "pool"]).to_pylist()
    ids = sorted(r["task_id"] for r in rows if r["pool"] == "train")
    np.random.Generator(np.random.PCG64(config.seed)).shuffle(ids)
    with opened(benchmark) as world:
        by_id = {t.task_id: t for t in world.tasks()}
    tasks = tuple(by_id[i] for i in ids[: episodes + 1])
    cpus = config.site.cpus or available_cpus()
    # As many threads as one replica of the collection has.
    threads = max(1, cpus // max(1, min(config.collect.workers, cpus)))
    return PaceItem(agent_plan(config, benchmark, agent, run_dir.root), tasks, threads)
