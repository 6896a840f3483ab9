"""`--on slurm`: the stages of a run as a chain of Slurm jobs, checked before anything is queued."""

from __future__ import annotations

import argparse
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.resources import parameters, read_plan, resources
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.submit import Step
    from jobs.config import RunConfig

BY_AGENT = ("collect", "activations", "heads", "probes")
"""Stages that agents go through independently: an array, one element per agent."""


def main(args: argparse.Namespace, config: RunConfig, root: Path) -> int:
    """Check, write the scripts, submit (not with --dry-run), and say what follows them."""
    from cluster import job_record as record
    from cluster import slurm, submit
    from cluster.run_dir import RunDir
    from jobs import submit_checks as checks
    from jobs import sweep_run
    from jobs.obey import check_path
    from jobs.stages import recordable

    if args.dry_run:
        limit = 1001
    else:
        slurm.require()
        limit = slurm.max_array_size()
        submit.check_path(root)
        checks.refuse_twice(root)
    elements = sweep_run.elements(config, root) if config.sweep else []
    checks.check_site(config)
    for place, one in [(root, config), *elements]:
        check_path(one, RunDir(place))
    steps = (
        [sweep_step(config, elements, root, args.again)]
        if elements
        else chain(config, root, args.command, args.agent, args.again)
    )
    if not args.dry_run:
        checks.fits(config, steps, slurm.node_kinds())
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"no run directory: {error}", "name another: --run-dir DIR") from error
    token = f"sentinel-{secrets.token_hex(8)}"
    scripts = submit.prepare(root, steps, token, limit)
    if not args.dry_run:
        env = slurm.environment(checks.site_sets(config))
        checks.accepted(config, scripts, env)
        checks.shared(config, root, env)
    for place, one in [(root, config), *elements]:
        with RunDir(place).lock():
            RunDir(place).prepare(recordable(one))
    lines = submit.shell(scripts)
    (record.folder(root) / "submit.sh").write_text("\n".join([*lines, ""]), encoding="utf-8")
    if args.dry_run:
        print(f"# nothing was submitted; scripts: {record.folder(root)}")
        print("\n".join(lines))
        return 0
    submission = submit.submit(root, scripts, token, env)
    print("\n".join(_told(root, submission)))
    if args.wait:
        from jobs import status

        return status.follow(root)
    return 0


def chain(
    config: RunConfig,
    root: Path,
    command: str,
    agents: Sequence[str] | None = None,
    again: str | None = None,
) -> list[Step]:
    """The jobs of `sentinel run` (all stages in order), or of one stage."""
    stages = list(config.stages) if command == "run" else [command]
    if command == "run" and config.collect.timed_episodes and "bootstrap" in stages:
        stages.insert(stages.index("bootstrap"), "pace")
    names = list(agents or [a.name for a in config.agents])
    plan = read_plan(root)
    return [_step(config, root, stage, names, bool(agents), plan, again) for stage in stages]


def _step(
    config: RunConfig,
    root: Path,
    stage: str,
    agents: list[str],
    chosen: bool,
    plan: Mapping[str, Any],
    again: str | None,
) -> Step:
    from cluster.submit import StageCommand, Step, python_of

    wanted = resources(config, stage, plan)
    reason = ["--again", again] if again else []
    ray = _ray(config, stage)
    if stage == "pace":
        reason = ["--episodes", str(config.collect.timed_episodes)]
    if stage in BY_AGENT and (chosen or len(agents) > 1):
        commands = [
            StageCommand(stage, root, ["--agent", a, *reason], element=a, ray=ray) for a in agents
        ]
    else:
        commands = [StageCommand(stage, root, reason, element="all agents", ray=ray)]
    return Step(
        stage,
        tuple(commands),
        parameters(config, stage, wanted),
        python_of(config.site.container, config.site.python),
        config.site.requeues,
    )


def sweep_step(
    config: RunConfig,
    elements: Sequence[tuple[Path, RunConfig]],
    root: Path,
    again: str | None = None,
) -> Step:
    """A sweep: an array of whole runs, one element per run directory."""
    from cluster.submit import StageCommand, Step, python_of

    commands = [
        StageCommand(
            "run",
            place,
            ["--again", str(again or one.again)],
            element=place.name,
            record_dir=root,
            ray=_ray(config, "run"),
        )
        for place, one in elements
    ]
    return Step(
        "run",
        tuple(commands),
        parameters(config, "run", resources(config, "run", read_plan(root))),
        python_of(config.site.container, config.site.python),
        config.site.requeues,
    )


def _ray(config: RunConfig, stage: str) -> dict[str, Any] | None:
    from jobs.stages import NEEDS_WORKERS

    site = config.site
    if stage not in (*NEEDS_WORKERS, "run") or not site.ray:
        return None
    return {
        "object_store_mb": site.object_store_mb,
        "interface": site.interface,
        "dashboard": site.dashboard is not False,
    }


def _told(root: Path, submission: Any) -> list[str]:
    """Job ids and the commands that follow and end them."""
    from cluster import job_record as record

    lines = []
    for job in submission.jobs:
        what = f"array of {len(job.elements)}: " + ", ".join(job.elements) if job.array else ""
        lines.append(f"submitted {job.id:>8}  {job.stage:12} {what[:120]}".rstrip())
    quoted = shlex.quote(str(root))
    ids = " ".join(job.id for job in submission.jobs)
    logs = shlex.quote(str(record.folder(root)))
    return [
        *lines,
        f"follow:  sentinel status {quoted} --follow",
        f"logs:    tail -F {logs}/{submission.jobs[0].id}*_log.out",
        f"cancel:  scancel {ids}",
    ]
