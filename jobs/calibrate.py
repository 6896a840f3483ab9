"""Stage calibrate: fit the decision layer on the calibration pool, decide the held-out pool once.

Reads the tables `tasks`, `episodes`, `labels`, `features`, `scores`; writes `prefix_scores`,
`decisions` and the frozen monitor: `monitor/BENCHMARK/AGENT/policy.json`, and with its heads the
final artifact `…/sentinel/`. The held-out pool is entered in the ledger before a decision on it is
made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow.compute as pc

from cluster import files
from cluster.ledger import Ledger
from jobs.label import labels_hash, primary_label
from jobs.monitor_export import export
from sentinel.decide import DecideConfig, Policy, apply, fit, from_table
from sentinel.decide.build import build
from sentinel.decide.evaluate import decision_table
from sentinel.decide.play import systems_of
from sentinel.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

STAGE = "calibrate"
AGENT_TABLES = ("episodes", "labels", "features", "scores")


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Fit and decide every agent whose tables are complete; finished parts are kept.

    One agent's fault leaves the others alone and is raised at the end.
    """
    faults: list[UserError] = []
    for benchmark in config.benchmarks:
        for agent in config.agents:
            if not _ready(run_dir, benchmark.name, agent.name):
                continue
            try:
                _one(config, run_dir, benchmark.name, agent.name)
            except UserError as error:
                faults.append(error)
    raise_first(faults)


def raise_first(faults: Sequence[UserError]) -> None:
    """Print all faults but the first, then raise that one."""
    for fault in faults[1:]:
        print(f"sentinel: {fault}", file=sys.stderr)
    if faults:
        raise faults[0]


def settings(config: RunConfig) -> DecideConfig:
    """The decision layer's settings in a run config."""
    decide = config.decide
    return DecideConfig.of(
        decide.lambdas,
        decide.gate_budget,
        decide.selection_margin,
        decide.shares,
        estimator_seed=decide.estimator_seed,
        resamples=config.bootstrap.resamples,
        seed=config.bootstrap.seed,
        seconds_per_step=decide.seconds_per_step,
    )


def monitor_folder(run_dir: RunDir, benchmark: str, agent: str) -> Path:
    """Where an agent's frozen monitor and its evaluation lie."""
    return run_dir.root / "monitor" / files.safe_name(benchmark) / files.safe_name(agent)


def manifest_hash(run_dir: RunDir, benchmark: str) -> str:
    """Names the held-out pool in the ledger: the pools' manifest, else the tasks of that pool."""
    recorded = files.read_json(run_dir.root / "manifests" / f"{files.safe_name(benchmark)}.json")
    if recorded is not None and isinstance(recorded.get("hash"), str):
        return str(recorded["hash"])
    tasks = run_dir.read("tasks", benchmark)
    held = tasks.filter(pc.equal(tasks.column("pool"), "heldout"))
    return files.digest(sorted(held.column("task_id").to_pylist()))


def _ready(run_dir: RunDir, benchmark: str, agent: str) -> bool:
    paths = [run_dir.table_path(name, benchmark, agent) for name in AGENT_TABLES]
    return all(path.exists() for path in paths)


def _one(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> None:
    options = settings(config)
    folder = monitor_folder(run_dir, benchmark, agent)
    inputs = {name: run_dir.table_hash(name, benchmark, agent) for name in AGENT_TABLES}
    inputs["tasks"] = run_dir.table_hash("tasks", benchmark, None)
    label = primary_label(config, run_dir, benchmark)
    inputs["labels"] = labels_hash(run_dir, benchmark, agent, label)
    joined = files.digest([inputs, label, config.decide.drop_stopped])
    # λ is no part of the hash: one more λ adds an item and leaves the finished ones alone.
    fitted = files.digest(
        [joined, options.gate_budget, options.selection_margin, options.estimator_seed]
    )
    items = {"prefix_scores": joined} | {f"lambda={lam}": fitted for lam in options.lambdas}
    done = [run_dir.is_done(STAGE, benchmark, agent, item, h) for item, h in items.items()]
    if not all(done) or not _holds(folder, options.lambdas):
        table, left_out = join(config, run_dir, benchmark, agent, label)
        run_dir.commit(STAGE, benchmark, agent, "prefix_scores", {"prefix_scores": table}, joined)
        columns = from_table(table)
        policy = fit(columns, options)
        Ledger.beside(run_dir.root).record(
            benchmark,
            manifest_hash(run_dir, benchmark),
            agent,
            policy.hash(),
            run=run_dir.root.name,
            again=config.again,
        )
        save(policy, folder, benchmark)
        heldout = columns.in_pool("heldout")
        for lam in options.lambdas:
            decided = [apply(policy, heldout, lam, system) for system in systems_of(policy)]
            part = decision_table(benchmark, heldout, decided)
            run_dir.commit(STAGE, benchmark, agent, f"lambda={lam}", {"decisions": part}, fitted)
        run_dir.metric(
            STAGE,
            event="fitted",
            benchmark=benchmark,
            agent=agent,
            policy=policy.hash(),
            flags=list(policy.flags),
            **{f"without_outcome_{end}": n for end, n in left_out.items()},
        )
    run_dir.compact(STAGE, benchmark, agent, ["prefix_scores", "decisions"])
    export(config, run_dir, benchmark, agent)


def join(
    config: RunConfig, run_dir: RunDir, benchmark: str, agent: str, label: str
) -> tuple[pa.Table, dict[str, int]]:
    """`prefix_scores` of one agent under one label, and the episodes left out by their ends."""
    episodes, labels, features, scores = (
        run_dir.read(name, benchmark, agent) for name in AGENT_TABLES
    )
    tasks = run_dir.read("tasks", benchmark)
    drop = config.decide.drop_stopped
    return build(tasks, episodes, labels, features, scores, label, drop)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file's content atomically."""

    def write(file: IO[bytes]) -> None:
        file.write(data)

    files.write_atomic(path, write)


def _holds(folder: Path, lambdas: tuple[str, ...]) -> bool:
    found = files.read_json(folder / "policy.json")
    return found is not None and set(lambdas) <= set(found.get("stops", ()))


def save(policy: Policy, folder: Path, benchmark: str) -> None:
    """Write the frozen monitor; `policy.json` comes last and also names the benchmark."""
    archive = folder / "estimator.skops"
    data = policy.archive()
    if data is None:
        archive.unlink(missing_ok=True)
    else:
        write_bytes(archive, data)
    files.write_json(folder / "policy.json", {**policy.to_dict(), "benchmark": benchmark})
