"""The running of stages: the same functions, in order, on one run directory."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.config import RunConfig
from jobs.results import missing_parts
from jobs.stopping import stoppable
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

SLURM_WAIT = 120.0
ELEMENT_WAIT = 60.0
"""Seconds that a job waits for the lock of the one before, and elements for one another."""


def run_stages(
    config: RunConfig, root: Path, stages: Sequence[str], agents: Sequence[str] | None = None
) -> int:
    """Run stages in order; 0, or 3 when an agent's part is missing afterwards (named on stderr).

    `agents`: only these, beside other processes that do the same with other agents.
    """
    from cluster.provenance import record
    from cluster.run_dir import RunDir
    from jobs import judge
    from jobs.machine import open_site

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
    with stoppable() as take_signals, _held(run_dir, stages[0], agents), _recorded(run_dir, config):
        record(run_dir)
        site, metadata = config.site, _metadata(config, root, stages)
        with (
            _logging(log_path(run_dir, stages)),
            open_site(site, on, dashboard=bool(site.dashboard), metadata=metadata) as cluster,
        ):
            take_signals()  # Ray has handlers of its own
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
