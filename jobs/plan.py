"""`sentinel plan CONFIG`: GPU hours, tokens, dollars, memory and CPUs, before anything is spent.

A pilot runs a few train questions of every agent through the run's own engines; the stages after
collection are scaled from the measured rates of a finished run. What an API bills for the pilot is
paid from the run's `collect.budget_usd`, as its episodes will be. The result is kept as `plan.json`
in the run directory, where a submission to Slurm reads what to ask for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import plan_heads, rates
from jobs.config import RunConfig
from jobs.run import add_config_arguments, load
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.engines.fit import Fit
    from cluster.forecast import AgentSize, RunSize
    from jobs.sections import AgentConfig

EPISODES = 8
FILE = "plan.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG or --run-dir, the size of the pilot, and where rates come from."""
    add_config_arguments(parser)
    parser.add_argument(
        "--episodes", type=int, default=EPISODES, help="pilot episodes per agent (%(default)s)"
    )
    parser.add_argument(
        "--rates", type=Path, help="rates learned from a run of yours (--learn); default: shipped"
    )
    parser.add_argument(
        "--learn", type=Path, metavar="FILE", help="write the rates of this finished run and stop"
    )
    parser.add_argument("--json", action="store_true", help="print plan.json instead of a table")


def main(args: argparse.Namespace) -> int:
    """Run the pilot, print the plan and keep it in the run directory."""
    from cluster import files
    from cluster.run_dir import RunDir

    if args.episodes < 1:
        raise UserError(f"--episodes {args.episodes}", "plan from at least one episode")
    config, root = load(args)
    if args.learn is not None:
        files.write_json(args.learn.expanduser().absolute(), rates.learned(config, RunDir(root)))
        print(f"rates of {root}: {args.learn}")
        return 0
    found = plan(config, root, args.episodes, rates.load(args.rates))
    root.mkdir(parents=True, exist_ok=True)
    files.write_json(root / FILE, found)
    if args.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print("\n".join([*table(found), *paid(config, root, found)]))
        print(f"plan: {root / FILE}")
    return 0


def plan(config: RunConfig, root: Path, episodes: int, known: dict[str, Any]) -> dict[str, Any]:
    """Pilot and forecast as JSON-able values: one entry per stage, `agents`, `heads_on_gpus`.

    `root`: the run directory, whose budget the pilots of APIs are paid from. Raises UserError for
    an agent whose pilot has no outcome, or that does not fit, and where the budget is spent.
    """
    from cluster import forecast

    plan_heads.encoder(config)  # an encoder that cannot serve is named before a pilot is paid
    cpus = {stage: _cpus(config, stage) for stage in ("collect", *config.stages)}
    workers = min(config.collect.workers, cpus["collect"])
    fits = [_fit(agent, config.collect.concurrency) for _, agent in config.pairs]
    sizes = list(_agents(config, root, episodes, max(1, cpus["collect"] // workers), fits))
    size = run_size(config, sizes)
    found: dict[str, Any] = {}
    for stage in config.stages:
        entry = (
            forecast.collection(sizes, workers, cpus[stage])
            if stage == "collect"
            else forecast.later(stage, size, known, cpus[stage], _stage_gpus(stage, config, sizes))
        )
        found[stage] = entry.to_dict()
    found["heads_on_gpus"] = plan_heads.heads_on_gpus(config, sizes)
    found["agents"] = [_agent_entry(s, f) for s, f in zip(sizes, fits, strict=True)]
    return found


def _cpus(config: RunConfig, stage: str) -> int:
    """CPUs of a stage: those of this process, on a cluster what its job will ask for."""
    from cluster.ray_runtime import available_cpus
    from jobs.resources import resources

    if config.site.name == "local":
        return config.site.cpus or available_cpus()
    return resources(config, stage).cpus


def _fit(agent: AgentConfig, concurrency: int) -> Fit | None:
    """The memory that an agent wants of each device; None for an API."""
    from cluster.engines import check_agent, fit
    from jobs.machine import visible_gpus

    mapping = agent.model_dump(exclude_none=True)
    if agent.engine not in ("transformers", "vllm"):
        check_agent(mapping)
        return None
    return fit.check_agent(mapping, visible_gpus(), concurrency)


def _replicas(agent: AgentConfig, fit: Fit | None) -> int | None:
    """How many collection runs at most, as it decides; None: as many as there are workers."""
    if agent.engine == "openai":
        return 1
    if fit is None or fit.device != "cpu" or fit.device_gb is None:
        return None
    return max(1, int(fit.device_gb // fit.least_gb))


def _stage_gpus(stage: str, config: RunConfig, sizes: list[AgentSize]) -> int:
    """Devices of a later stage's tasks: hidden states where the agents run, a large encoder's."""
    from jobs.machine import visible_gpus

    if stage == "activations":
        return int(any(s.gpus for s in sizes))
    heads = config.heads
    large = stage == "heads" and heads.kind == "encoder" and not heads.encoder.startswith("nano")
    return int(large and heads.device != "cpu" and visible_gpus() > 0)


def _agents(
    config: RunConfig, root: Path, episodes: int, threads: int, fits: list[Fit | None]
) -> Iterator[AgentSize]:
    from cluster.forecast import AgentSize
    from cluster.pilot import PilotItem, run
    from jobs.machine import visible_gpus
    from jobs.pace import agent_plan
    from jobs.tasks import opened, task_table

    pairs = [(b.name, a, fit) for (b, a), fit in zip(config.pairs, fits, strict=True)]
    for benchmark in config.benchmarks:
        with opened(benchmark) as world:
            table = task_table(config, world).select(["task_id", "pool"]).to_pylist()
            by_id = {t.task_id: t for t in world.tasks()}
        train = [r["task_id"] for r in table if r["pool"] == "train"]
        chosen = tuple(by_id[i] for i in _drawn(train, episodes + 1, config.seed))
        for agent, fit in ((a, fit) for b, a, fit in pairs if b == benchmark.name):
            item = PilotItem(
                agent_plan(config, benchmark, agent, root),
                chosen,
                min(episodes, config.collect.concurrency),
                threads,
            )
            gpus = _gpus(agent, visible_gpus())
            total = len(table) * config.collect.rollouts
            most = _replicas(agent, fit)
            yield AgentSize(benchmark.name, agent.name, total, gpus, run(item), most)


def _gpus(agent: AgentConfig, visible: int) -> int:
    local = agent.engine in ("vllm", "transformers")
    return agent.tensor_parallel if local and visible and agent.device != "cpu" else 0


def _drawn(ids: list[str], n: int, seed: int) -> list[str]:
    import numpy as np

    if len(ids) < 2:
        raise UserError(
            f"{len(ids)} train questions are too few for a pilot", "raise collect.limit"
        )
    order = sorted(ids)
    np.random.Generator(np.random.PCG64(seed)).shuffle(order)
    return order[:n]


def run_size(config: RunConfig, sizes: list[AgentSize]) -> RunSize:
    """What the later stages grow with, from the pilots' means."""
    tokens = sum(
        s.episodes * (s.pilot.prompt_tokens.mean + s.pilot.generated_tokens.mean) for s in sizes
    )
    return rates.size(
        config,
        agents=len(sizes),
        episodes=sum(s.episodes for s in sizes),
        turns=sum(s.episodes * s.pilot.turns.mean for s in sizes),
        tokens=tokens,
    )


def _agent_entry(size: AgentSize, fit: Fit | None) -> dict[str, Any]:
    pilot = size.pilot
    return {
        "benchmark": size.benchmark,
        "agent": size.agent,
        "episodes": size.episodes,
        "gpu_hours": size.replica_hours * size.gpus,
        "replica_hours": size.replica_hours,
        "turns": size.total(pilot.turns),
        "prompt_tokens": size.total(pilot.prompt_tokens),
        "generated_tokens": size.total(pilot.generated_tokens),
        "dollars": None if pilot.dollars is None else size.total(pilot.dollars),
        "gpus": size.gpus,
        "memory": None if fit is None else asdict(fit),
        "pilot": pilot.to_dict(),
    }


def table(found: dict[str, Any]) -> list[str]:
    """The plan as lines for a terminal."""
    from cluster.progress import duration

    head = (
        f"{'agent':34} {'episodes':>8} {'prompt':>9} {'generated':>9} {'GPU h':>8} "
        f"{'GPU memory':>12} {'$':>10}"
    )
    out = [head]
    for a in found["agents"]:
        dollars = "" if a["dollars"] is None else _ranged(a["dollars"], 2)
        name = f"{a['benchmark']}/{a['agent']}"
        out.append(
            f"{name:34} {a['episodes']:8} {_short(a['prompt_tokens']['mean']):>9} "
            f"{_short(a['generated_tokens']['mean']):>9} {a['gpu_hours']:8.2f} "
            f"{_gpu_memory(a):>12} {dollars:>10}"
        )
        failed = a["pilot"]["failed"]
        if failed:
            out.append(f"  {failed} pilot episodes had no outcome: {a['pilot']['first_error']}")
    out += ["", f"{'stage':12} {'time':>8} {'CPUs':>5} {'GPUs':>5} {'memory':>9}  from"]
    for stage, s in ((k, v) for k, v in found.items() if isinstance(v, dict)):
        hours = "?" if s["hours"] is None else duration(3600 * s["hours"])
        memory = "?" if s["memory_mb"] is None else f"{s['memory_mb']} MB"
        out.append(f"{stage:12} {hours:>8} {s['cpus']:5} {s['gpus']:5} {memory:>9}  {s['basis']}")
    return [*out, *plan_heads.lines(found.get("heads_on_gpus", ()))]


def paid(config: RunConfig, root: Path, found: dict[str, Any]) -> list[str]:
    """What the APIs were paid so far, and whether the budget holds what is planned."""
    from cluster.engines.openai_spend import SpendReader

    wanted = [a["dollars"]["mean"] for a in found["agents"] if a["dollars"] is not None]
    if not wanted:
        return []
    spent = SpendReader(root / "spend").total()
    line = f"paid to APIs so far, pilots included: ${spent:,.4f}"
    budget = config.collect.budget_usd
    if budget is None:
        return [line, "no budget is set: collect.budget_usd=DOLLARS stops the run there"]
    short = spent + sum(wanted) - budget
    if short <= 0:
        return [f"{line} of ${budget:,.2f}"]
    return [
        f"{line} of ${budget:,.2f}; the plan wants ${short:,.2f} more than that: the run will stop "
        "in the middle, and go on with a larger collect.budget_usd"
    ]


def _gpu_memory(agent: dict[str, Any]) -> str:
    """`2 × 17.4 GB`: devices of a replica, and what each is to hold."""
    memory = agent["memory"]
    if memory is None or memory["device"] != "cuda":
        return ""
    return f"{agent['gpus']} × {memory['wanted_gb']:.1f} GB"


def _short(tokens: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f} {letter}"
    return f"{tokens:.0f}"


def _ranged(total: dict[str, float | None], digits: int) -> str:
    if total["low"] is None or total["high"] is None:
        return f"{total['mean']:.{digits}f}"
    return f"{total['low']:.{digits}f}–{total['high']:.{digits}f}"
