"""What each stage of a run asks Slurm for, and how submitit is told."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.config import RunConfig

ON_GPU = ("collect", "activations", "heads", "audit")
DEFAULTS = {
    # stage: (CPUs, memory in MB), where neither the site nor a plan says more
    "collect": (4, 8000),
    "activations": (4, 8000),
    "heads": (4, 8000),
    "audit": (4, 4000),
    "search": (4, 4000),
    "bootstrap": (4, 4000),
    "run": (4, 8000),
}
SMALL = (2, 4000)


@dataclass(frozen=True)
class Resources:
    """What one job asks for; everything but `hours` is per node."""

    cpus: int
    gpus: int
    memory_mb: int
    hours: float
    nodes: int = 1


def resources(config: RunConfig, stage: str, plan: Mapping[str, Any] | None = None) -> Resources:
    """What a stage asks for: the site's own numbers, else the plan's, else defaults.

    `plan`: the run's `plan.json`, stage → {memory_mb, cpus, gpus, hours}. A plan's time is a mean:
    a job gets twice that, at least ten minutes. `run` (an element of a sweep) gets the most of all
    stages.
    """
    from jobs.stages import NEEDS_WORKERS

    plan = plan or {}
    if stage == "run":
        parts = [resources(config, s, plan) for s in config.stages]
        whole = [p.hours for p in parts]
        most = Resources(
            max(p.cpus for p in parts),
            max(p.gpus for p in parts),
            max(p.memory_mb for p in parts),
            sum(whole) if plan else config.site.hours,
            max(p.nodes for p in parts),
        )
        return _overruled(config, stage, most)
    site = config.site
    planned: Mapping[str, Any] = plan.get(stage) or {}
    cpus, memory = DEFAULTS.get(stage, SMALL)
    hours = planned.get("hours")
    found = Resources(
        cpus=site.cpus or int(planned.get("cpus") or cpus),
        gpus=_gpus(config, stage, planned),
        memory_mb=site.memory_mb or int(planned.get("memory_mb") or memory),
        hours=site.hours if hours is None else min(site.hours, max(1 / 6, 2 * float(hours))),
        nodes=site.nodes if stage in NEEDS_WORKERS and site.ray else 1,
    )
    return _overruled(config, stage, found)


def _gpus(config: RunConfig, stage: str, planned: Mapping[str, Any]) -> int:
    if stage not in ON_GPU:
        return 0
    if stage == "audit" and not (config.audit.seeds or config.audit.loop == "heads"):
        return 0  # nothing of it fits a head again
    if config.site.gpus is not None:
        return config.site.gpus
    if planned.get("gpus") is not None:
        return int(planned["gpus"])
    wanting = [
        a.tensor_parallel
        for a in config.agents
        if a.device == "cuda" or (a.engine == "vllm" and a.device != "cpu")
    ]
    return max(wanting, default=0) if stage not in ("heads", "audit") else 0


def _overruled(config: RunConfig, stage: str, found: Resources) -> Resources:
    own = config.site.stages.get(stage)
    if own is None:
        return found
    named = {k: v for k, v in own.model_dump().items() if v is not None}
    return Resources(**{**found.__dict__, **named})


def parameters(config: RunConfig, stage: str, wanted: Resources) -> dict[str, Any]:
    """submitit's parameters of a job."""
    from cluster.submit import title

    site = config.site
    found: dict[str, Any] = {
        "job_name": title(config.name, stage),
        "time": max(1, math.ceil(wanted.hours * 60)),
        "nodes": wanted.nodes,
        "ntasks_per_node": 1,
        "cpus_per_task": wanted.cpus,
        "mem": f"{wanted.memory_mb}M",
        "signal_delay_s": site.signal_seconds,
        "array_parallelism": site.array_parallelism,
        "setup": [
            *(f"module load {shlex.quote(m)}" for m in site.modules),
            *(f"export {k}={shlex.quote(v)}" for k, v in site.environment.items()),
            *site.setup,
        ],
        "additional_parameters": {"requeue": True, **site.options},
    }
    if wanted.gpus:
        found["gpus_per_node"] = wanted.gpus
    for name in ("partition", "account", "qos", "constraint"):
        if getattr(site, name) is not None:
            found[name] = getattr(site, name)
    return found


def read_plan(root: Path) -> dict[str, Any]:
    """What `sentinel plan` found for this run; empty where it was not asked."""
    from cluster import files

    found = files.read_json(root / "plan.json") or {}
    return {k: v for k, v in found.items() if isinstance(v, dict)}
