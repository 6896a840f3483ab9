"""What can be known to be wrong with a submission before anything is queued: one line each."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.slurm import NodeKind
    from cluster.submit import Script, Step
    from jobs.config import RunConfig


def check_site(config: RunConfig) -> None:
    """Raise UserError for settings of the site that can be told wrong without asking Slurm."""
    from jobs.config import STAGES
    from jobs.config_files import hint

    valid = [*STAGES, "pace", "run"]
    unknown = [s for s in config.site.stages if s not in valid]
    if unknown:
        raise UserError(f"site.stages: no stage {unknown[0]!r}", hint(unknown[0], valid))
    if config.site.address is not None:
        raise UserError(
            "site.address names a running Ray, but a Slurm job starts its own",
            "remove site.address, or use --on local",
        )


def site_sets(config: RunConfig) -> list[str]:
    """Settings that the site file names, so that the user's defaults in the shell do not count."""
    names = ("partition", "account", "qos")
    return [n for n in names if getattr(config.site, n) is not None]


def fits(config: RunConfig, steps: Sequence[Step], kinds: Sequence[NodeKind]) -> None:
    """Raise UserError where the partition lacks what a job asks for."""
    from jobs.config_files import hint

    name = config.site.partition
    for part in (name or "").split(","):
        if part and part not in {k.partition for k in kinds}:
            raise UserError(
                f"no partition {part!r} on this cluster",
                f"{hint(part, dict.fromkeys(k.partition for k in kinds))}; set site.partition",
            )
    wanted = name.split(",") if name else [k.partition for k in kinds if k.default]
    ours = [k for k in kinds if k.partition in wanted]
    if not ours:
        return  # the site has no default: sbatch says what it wants
    where = f"partition {','.join(wanted)}"
    if not any(k.up for k in ours):
        raise UserError(f"{where} is down", "name another: site.partition=NAME")
    for step in steps:
        asked = step.parameters
        memory = int(str(asked["mem"]).rstrip("M"))
        limits = (
            ("GPUs", int(asked.get("gpus_per_node", 0)), max(k.gpus for k in ours), "gpus"),
            ("CPUs", int(asked["cpus_per_task"]), max(k.cpus for k in ours), "cpus"),
            ("MB of memory", memory, max(k.memory_mb for k in ours), "memory_mb"),
        )
        for what, number, most, key in limits:
            if number > most:
                raise UserError(
                    f"{step.stage} asks for {number} {what} per node, a node of {where} has {most}",
                    f"set site.stages.{step.stage}.{key}={most}, or another site.partition",
                )
        nodes = sum(k.nodes for k in ours)
        if int(asked["nodes"]) > nodes:
            raise UserError(
                f"{step.stage} asks for {asked['nodes']} nodes, {where} has {nodes}",
                f"set site.nodes={nodes}",
            )


def accepted(config: RunConfig, scripts: Sequence[Script], env: Mapping[str, str]) -> None:
    """Raise UserError where Slurm would not take a script."""
    from cluster import submit

    for script in scripts:
        objection = submit.would_take(script, env)
        if objection is None:
            continue
        site = config.site
        named = ", ".join(
            f"{n} {getattr(site, n)}"
            for n in ("account", "qos", "partition")
            if getattr(site, n) is not None
        )
        raise UserError(
            f"Slurm would refuse {script.stage} ({named or 'no account named'}): {objection}",
            "mend the site file (sacctmgr show assoc user=$USER format=account,partition,qos)",
        )


def shared(config: RunConfig, root: Path, env: Mapping[str, str]) -> None:
    """Raise UserError where a node does not see the run directory."""
    from cluster import submit

    site = config.site
    options = [
        f"--{n}={getattr(site, n)}"
        for n in ("partition", "account", "qos", "constraint")
        if getattr(site, n) is not None
    ]
    shared = submit.is_shared(root, options, env)
    if shared is None:
        print(
            f"sentinel: no node was free to check that it sees {root}; the first job finds out",
            file=sys.stderr,
        )
    elif not shared:
        raise UserError(
            f"the nodes do not see {root}: it is on a disk of this machine alone",
            "use a folder on the shared disk: --run-dir DIR",
        )


def refuse_twice(root: Path) -> None:
    """Raise UserError while jobs of an earlier submission may still write to the run."""
    from cluster import job_record as record
    from cluster import slurm

    for submission in record.read(root)[-1:]:
        busy = [q.id for q in slurm.queue(submission.token).values() if not q.over]
        if busy:
            ids = sorted({i.split("_")[0] for i in busy}, key=int)
            raise UserError(
                f"jobs of this run are still in the queue: {', '.join(ids)}",
                f"follow them: sentinel status {shlex.quote(str(root))} --follow, "
                f"or end them: scancel {' '.join(ids)}",
            )
