"""`sentinel run` and each stage alone: the same functions, in order, on one run directory."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.config import RunConfig
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir

NEEDS_WORKERS = ("collect", "label", "activations", "heads", "probes", "search", "bootstrap")
"""Stages that map work over Ray; the others read tables in this process."""

RESULT = {
    "collect": "episodes",
    "label": "labels",
    "activations": "activations",
    "heads": "scores",
    "probes": "round_scores_*",
    "calibrate": "decisions",
    "search": "cascade_rows",
    "bootstrap": "intervals",
}
"""The table by whose presence an agent's stage is complete; `*`: one per mode of the cascade."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG, or --run-dir of a run that was begun; settings as `key.path=value`."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a run config (YAML)")
    parser.add_argument(
        "settings", nargs="*", metavar="key.path=value", help="settings that override the config"
    )
    parser.add_argument("--run-dir", type=Path, help="run directory (default: runs/NAME)")
    parser.add_argument("--on", choices=("local", "debug"), help="Ray here, or a plain loop")
    parser.add_argument(
        "--again", metavar="REASON", help="evaluate a held-out pool once more, and why"
    )


def main(args: argparse.Namespace) -> int:
    """Run the stage named by the command, or all."""
    config, root = load(args)
    stages = config.stages if args.command == "run" else (args.command,)
    return run_stages(config, root, stages)


def load(args: argparse.Namespace) -> tuple[RunConfig, Path]:
    """The config of a command line, and the run directory's path.

    Without CONFIG the one that the run directory recorded. Raises UserError when neither is there.
    """
    settings = list(args.settings)
    path = args.config
    if path is not None and "=" in path and not Path(path).exists():
        settings.insert(0, path)
        path = None
    settings += [f"on={args.on}"] if args.on else []
    if path is not None:
        config = RunConfig.from_file(path, settings)
        root = args.run_dir or Path("runs") / config.name
    elif args.run_dir is not None:
        config = recorded_config(args.run_dir, settings)
        root = args.run_dir
    else:
        raise UserError(
            "no config named", f"sentinel {args.command} CONFIG, or --run-dir DIR of a begun run"
        )
    if args.again:
        config = config.model_copy(update={"again": args.again})
    return config, root.expanduser().absolute()


def recorded_config(root: Path, settings: Sequence[str] = ()) -> RunConfig:
    """The config in a run directory. Raises UserError when there is none or it is damaged."""
    path = root / "config.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{root} is no run directory ({path.name}: {getattr(error, 'strerror', error)})",
            f"sentinel run CONFIG --run-dir '{root}'",
        ) from error
    return RunConfig.from_json(text, where=str(path), overrides=settings)


def run_stages(config: RunConfig, root: Path, stages: Sequence[str]) -> int:
    """Run stages in order; 0, or 3 when an agent's part is missing afterwards (named on stderr)."""
    from cluster.pool import open_cluster
    from cluster.provenance import record
    from cluster.run_dir import RunDir
    from jobs.machine import visible_gpus

    if config.sweep:
        raise UserError("sweeps are not run by this command", "remove `sweep:`, one run each")
    run_dir = RunDir(root)
    try:
        run_dir.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"no run directory: {error}", "name another: --run-dir DIR") from error
    modules = [importlib.import_module(f"jobs.{stage}") for stage in stages]
    on = config.on if any(stage in NEEDS_WORKERS for stage in stages) else "debug"
    with run_dir.lock(), _recorded(run_dir, config):
        record(run_dir)
        site = config.site
        log_file = run_dir.logs / f"{stages[0] if len(stages) == 1 else 'run'}.log"
        with (
            _logging(log_file),
            open_cluster(
                on,
                site.cpus,
                visible_gpus() if site.gpus is None else site.gpus,
                site.address,
                object_store_mb=site.object_store_mb,
            ) as cluster,
        ):
            for stage, module in zip(stages, modules, strict=True):
                if stage == "bootstrap" and len(stages) > 1 and config.collect.timed_episodes:
                    _time_agents(config, run_dir)
                _run_stage(stage, module.run, config, run_dir, cluster)
    missing = [line for stage in stages for line in missing_parts(config, run_dir, stage)]
    for line in missing:
        print(f"sentinel: missing: {line}", file=sys.stderr)
    if "report" in stages and run_dir.report_path.exists():
        _say(f"report: {run_dir.report_path}")
    return 3 if missing else 0


@contextmanager
def _recorded(run_dir: RunDir, config: RunConfig) -> Iterator[None]:
    """`config.json` holds this config, but for one that a stage refused: then the earlier one."""
    try:
        earlier = json.loads(run_dir.config_path.read_bytes())
    except (OSError, ValueError):
        earlier = None
    # `again` is said each time; a resumed run must not inherit it.
    run_dir.prepare(config.model_copy(update={"again": None}).model_dump(mode="json"))
    try:
        yield
    except UserError:
        if isinstance(earlier, dict):
            run_dir.prepare(earlier)
        raise


def _run_stage(
    stage: str, function: object, config: RunConfig, run_dir: RunDir, cluster: Cluster
) -> None:
    from cluster.memory import PeakMemory

    start = time.perf_counter()
    _say(f"{stage}: started")
    with run_dir.timed(stage), PeakMemory() as memory:
        function(config, run_dir, cluster)  # type: ignore[operator]
    run_dir.metric(stage, event="memory", peak_mb=round(memory.mb))
    _say(f"{stage}: done in {time.perf_counter() - start:.1f} s")


def _time_agents(config: RunConfig, run_dir: RunDir) -> None:
    """The serial timed rerun, while the workers idle; agents that were timed are not again."""
    from jobs import pace

    pace.run(config, run_dir, config.collect.timed_episodes, again=False)


def missing_parts(config: RunConfig, run_dir: RunDir, stage: str) -> list[str]:
    """`stage of benchmark/agent` for every agent without this stage's table; from files alone."""
    if stage == "report":
        return [] if run_dir.report_path.exists() else [f"report ({run_dir.report_path})"]
    return [
        f"{stage} of {benchmark.name}/{agent.name}"
        for benchmark in config.benchmarks
        for agent in config.agents
        if not has_result(config, run_dir, stage, benchmark.name, agent.name)
    ]


def has_result(config: RunConfig, run_dir: RunDir, stage: str, benchmark: str, agent: str) -> bool:
    """Whether an agent has the tables of a stage; from files alone."""
    name = RESULT[stage]
    names = [name.replace("*", mode) for mode in config.cascade.modes] if "*" in name else [name]
    return all(run_dir.table_path(n, benchmark, agent).exists() for n in names)


@contextmanager
def _logging(path: Path) -> Iterator[None]:
    """Warnings to stderr, everything from INFO on to a file of the run directory."""
    to_file = logging.FileHandler(path, encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    to_screen = logging.StreamHandler()
    to_screen.setLevel(logging.WARNING)
    to_screen.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.INFO)
    for handler in (to_file, to_screen):
        root.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in (to_file, to_screen):
            root.removeHandler(handler)
            handler.close()


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
