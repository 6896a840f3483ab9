"""`sentinel run` and each stage alone: the same functions, in order, on one run directory."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.config import RunConfig
from jobs.stopping import STOPS, Stopped, ignore
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir

NEEDS_WORKERS = (
    "collect",
    "label",
    "activations",
    "heads",
    "audit",
    "probes",
    "search",
    "bootstrap",
)
"""Stages that map work over Ray; the others read tables in this process."""

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


SLURM_WAIT = 120.0
ELEMENT_WAIT = 60.0
"""Seconds that a job waits for the lock of the one before, and elements for one another."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of every command on a run, and where it runs."""
    add_config_arguments(parser, ("local", "slurm", "debug"))
    parser.add_argument(
        "--agent", action="append", metavar="NAME", help="only this agent (may be repeated)"
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="join this running Ray; auto: the one that RAY_ADDRESS names",
    )
    parser.add_argument(
        "--dashboard", action="store_true", help="start Ray's dashboard, on loopback with a token"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --on slurm: write the scripts, submit nothing"
    )
    parser.add_argument(
        "--wait", action="store_true", help="with --on slurm: follow the jobs to their end"
    )


def add_config_arguments(
    parser: argparse.ArgumentParser, places: Sequence[str] = ("local", "debug")
) -> None:
    """CONFIG, or --run-dir of a run that was begun; settings as `key.path=value`."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a run config (YAML)")
    parser.add_argument(
        "settings", nargs="*", metavar="key.path=value", help="settings that override the config"
    )
    parser.add_argument("--run-dir", type=Path, help="run directory (default: runs/NAME)")
    parser.add_argument("--on", choices=places, help="Ray here, jobs on a cluster, or a plain loop")
    parser.add_argument(
        "--again", metavar="REASON", help="evaluate a held-out pool once more, and why"
    )


def main(args: argparse.Namespace) -> int:
    """Run the stage named by the command, or all; or submit that to Slurm."""
    config, root = load(args)
    if args.agent:
        for name in args.agent:
            config.agent(name)  # told before anything starts
        if args.command == "run" or config.sweep:
            raise UserError("--agent goes with one stage", "name it: sentinel collect --agent NAME")
    if config.on == "slurm":
        from jobs import submit

        return submit.main(args, config, root)
    config = _placed(config, args.address, args.dashboard)
    if args.dry_run or args.wait:
        raise UserError("--dry-run and --wait go with --on slurm", "add --on slurm")
    if config.sweep:
        from jobs import sweep_run

        if args.command != "run":
            raise UserError(
                f"sentinel {args.command} works on one run, this is a sweep",
                f"name an element's folder: sentinel {args.command} --run-dir '{root}/sweep-…'",
            )
        return sweep_run.run(config, root)
    stages = config.stages if args.command == "run" else (args.command,)
    return run_stages(config, root, stages, args.agent)


def _placed(config: RunConfig, address: str | None, dashboard: bool) -> RunConfig:
    """The config with the Ray of the command line; a run directory does not keep it."""
    if address and config.on == "debug":
        raise UserError("--on debug uses no Ray", "leave out --address, or use --on local")
    site: dict[str, Any] = {"address": address} if address else {}
    if dashboard:
        site["dashboard"] = True
    return config.model_copy(update={"site": config.site.model_copy(update=site)})


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
    if args.on == "slurm" and not any(s.split("=")[0] == "site" for s in settings):
        settings = [*_slurm_site(path, args.run_dir), *settings]
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


def _slurm_site(path: str | None, root: Path | None) -> list[str]:
    """`site=slurm` where the config names no site, or this machine."""
    from jobs.config_files import available, read_mapping

    beside = Path.cwd()
    if path is not None:
        file = Path(path).expanduser().absolute()
        site, beside = read_mapping(file).get("site", "local"), file.parent
    elif root is not None:
        site = recorded_config(root).site.name
    else:
        return []
    if site != "local":
        return []
    # An installed package carries no site files: then the defaults of any Slurm.
    return ["site=slurm" if "slurm" in available("sites", beside) else "site={name: slurm}"]


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


def run_stages(
    config: RunConfig, root: Path, stages: Sequence[str], agents: Sequence[str] | None = None
) -> int:
    """Run stages in order; 0, or 3 when an agent's part is missing afterwards (named on stderr).

    `agents`: only these, beside other processes that do the same with other agents.
    """
    from cluster.pool import open_cluster
    from cluster.provenance import record
    from cluster.run_dir import RunDir
    from jobs import judge
    from jobs.machine import visible_gpus

    run_dir = RunDir(root, "+".join(agents) if agents else None)
    try:
        run_dir.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"no run directory: {error}", "name another: --run-dir DIR") from error
    modules = [importlib.import_module(f"jobs.{stage}") for stage in stages]
    judge.check_start(config, run_dir, stages)
    on = config.on if any(stage in NEEDS_WORKERS for stage in stages) else "debug"
    chosen = config
    if agents:
        kept = tuple(a for a in config.agents if a.name in agents)
        chosen = config.model_copy(update={"agents": kept})
    with _stoppable() as stoppable, _held(run_dir, stages[0], agents), _recorded(run_dir, config):
        record(run_dir)
        site = config.site
        with (
            _logging(log_path(run_dir, stages)),
            open_cluster(
                on,
                site.cpus,
                visible_gpus() if site.gpus is None else site.gpus,
                site.address,
                object_store_mb=site.object_store_mb,
                dashboard=bool(site.dashboard),
                metadata=_metadata(config, root, stages),
            ) as cluster,
        ):
            stoppable()  # Ray has handlers of its own
            for line in cluster.told():
                _say(line)
            for stage, module in zip(stages, modules, strict=True):
                if stage == "bootstrap" and len(stages) > 1 and config.collect.timed_episodes:
                    _time_agents(config, run_dir)
                _run_stage(stage, module.run, chosen, run_dir, cluster)
                if stage == "judge" and judge.holds(chosen, run_dir):
                    _say("judge: later stages wait for the verdicts that are missing")
                    break
    missing = [line for stage in stages for line in missing_parts(chosen, run_dir, stage)]
    for line in missing:
        print(f"sentinel: missing: {line}", file=sys.stderr)
    if "report" in stages and run_dir.report_path.exists():
        _say(f"report: {run_dir.report_path}")
    return 3 if missing else 0


def _metadata(config: RunConfig, root: Path, stages: Sequence[str]) -> dict[str, str]:
    """What Ray's list of jobs says of this driver."""
    found = {"run": config.name, "stage": stages[0] if len(stages) == 1 else "run"}
    found["run_dir"] = str(root)
    if "SLURM_JOB_ID" in os.environ:
        found["slurm_job"] = os.environ["SLURM_JOB_ID"]
    return found


@contextmanager
def _recorded(run_dir: RunDir, config: RunConfig) -> Iterator[None]:
    """`config.json` holds this config, but for one that a stage refused: then the earlier one."""
    try:
        earlier = json.loads(run_dir.config_path.read_bytes())
    except (OSError, ValueError):
        earlier = None
    wanted = recordable(config)
    if wanted != earlier:
        run_dir.prepare(wanted)
    try:
        yield
    except UserError:
        if isinstance(earlier, dict) and wanted != earlier:
            run_dir.prepare(earlier)
        raise


def recordable(config: RunConfig) -> dict[str, Any]:
    """The config as a run directory keeps it: neither where it was sent nor why it looks again."""
    # `again` is said each time; a resumed run must not inherit it.
    site = config.site.model_copy(update={"address": None})
    update: dict[str, Any] = {"again": None, "site": site}
    if config.on == "slurm":
        update["on"] = "local" if config.site.ray else "debug"  # what its jobs do on their nodes
    return config.model_copy(update=update).model_dump(mode="json")


@contextmanager
def _held(run_dir: RunDir, stage: str, agents: Sequence[str] | None) -> Iterator[None]:
    """The lock of the whole run, or of some agents' part of a stage.

    A Slurm job waits: the one before it may still be leaving.
    """
    wait = SLURM_WAIT if "SLURM_JOB_ID" in os.environ else 0.0
    with ExitStack() as held:
        for agent in agents or ():
            held.enter_context(run_dir.lock_element(stage, agent, max(wait, ELEMENT_WAIT)))
        if not agents:
            held.enter_context(run_dir.lock(wait=wait))
        yield


@contextmanager
def _stoppable() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGUSR2 (Slurm's end, and its warning) stop like Ctrl-C: cleanly, once.

    Yields what takes the signals again after someone else took them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {s: signal.getsignal(s) for s in STOPS}

    def stop(number: int, frame: object) -> None:
        ignore()
        raise Stopped(number)

    def take() -> None:
        for s in STOPS:
            signal.signal(s, stop)

    take()
    try:
        yield take
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def log_path(run_dir: RunDir, stages: Sequence[str]) -> Path:
    """The log file of a driver of these stages."""
    name = stages[0] if len(stages) == 1 else "run"
    return run_dir.logs / f"{name}{f'@{run_dir.element}' if run_dir.element else ''}.log"


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


class _LogFile(logging.FileHandler):
    """A full disk costs lines of the log; whoever writes results says so."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing, where `logging` would print a traceback per line."""


@contextmanager
def _logging(path: Path) -> Iterator[None]:
    """Warnings to stderr, everything from INFO on to a file of the run directory."""
    to_file = _LogFile(path, encoding="utf-8")
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
