"""`sentinel collect`: run every agent on the chosen tasks of every benchmark.

Only episodes that are in no journal run. When all of an agent's episodes are there, they become the
tables `episodes` and `turns`; the tasks and the manifest of the pools are written first.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from jobs.stopping import run_async
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.collect_actor import Tally, Team
    from cluster.placement import Seats
    from cluster.pool import Cluster
    from cluster.progress import Progress
    from cluster.replica import Job, Plan
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from sentinel.agent.react import Dialect
    from sentinel.benchmarks.base import Task
    from sentinel.splits import Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """The work of one agent on one benchmark: what must be there, and what still has to run."""

    plan: Plan
    input_hash: str
    expected: list[Job]
    missing: list[Job]
    complete: bool
    replicas: int | None = None
    """How many fit into the memory of a machine; None: nothing is known of it."""


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Collect what is missing. One agent's fault leaves the others alone and is raised at the end.

    Raises UserError for a missing engine, weights or data, and where finished work was made with
    another configuration.
    """
    from cluster.provenance import record
    from jobs.obey import check_path

    check_path(config, run_dir)
    faults: list[UserError] = []
    parts: list[Part] = []
    for benchmark in config.benchmarks:
        try:
            parts += _parts(config, run_dir, benchmark, cluster, faults)
        except UserError as error:
            faults.append(error)
    if parts:
        _work(config, run_dir, cluster, parts, faults)
        record(run_dir)  # with what the workers found out about their agents
    _tell(run_dir, parts)
    for fault in faults[1:]:
        print(f"sentinel: {fault}", file=sys.stderr)
    if faults:
        raise faults[0]


def _work(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, parts: list[Part], faults: list[UserError]
) -> None:
    """Run what the parts lack and compact them; adds the faults of single agents to `faults`."""
    from cluster.files import no_space
    from cluster.placement import Seats
    from cluster.progress import Progress
    from cluster.replica import STAGE

    total = sum(len(p.expected) for p in parts)
    left = sum(len(p.missing) for p in parts)
    with (
        no_space(run_dir.root),
        Progress(STAGE, total, done=total - left, unit="episodes", run_dir=run_dir) as progress,
    ):
        for part in (p for p in parts if not p.missing):
            _compact(run_dir, part)
        todo = sorted((p for p in parts if p.missing), key=_place)
        seats = Seats()
        for (gpus, _), group in groupby(todo, key=_place):
            some = list(group)
            try:
                run_async(_together(config, run_dir, cluster, some, gpus, seats, progress, faults))
            except UserError as error:
                faults.append(error)


def _tell(run_dir: RunDir, parts: Sequence[Part]) -> None:
    """Print what monitors did to the agents that are complete."""
    from cluster import exits

    for part in (p for p in parts if p.plan.orders is not None):
        found = exits.summary(run_dir, part.plan.benchmark["name"], part.plan.agent["name"])
        if found is not None:
            print(exits.told(found))


def _place(part: Part) -> tuple[int, bool]:
    """What a part runs on: devices of its own, and whether that is an API's server."""
    return part.plan.gpus, part.plan.agent["engine"] == "openai"


async def _together(
    config: RunConfig,
    run_dir: RunDir,
    cluster: Cluster,
    parts: Sequence[Part],
    gpus: int,
    seats: Seats,
    progress: Progress,
    faults: list[UserError],
) -> None:
    """Agents that want the same devices: as many at once as have their own, else one by one."""
    from cluster.collect_actor import Team, work_through
    from cluster.placement import Node, cluster_nodes, share

    settings = config.collect
    parallel = None if settings.parallel_agents == "auto" else settings.parallel_agents
    if cluster.debug:
        nodes, parallel = [Node(cluster.cpus, cluster.gpus)], 1
    else:
        nodes = cluster_nodes(cluster.cpus, cluster.gpus)
    fits = [part.replicas for part in parts if part.replicas is not None]
    workers = min([settings.workers, *fits]) if len(nodes) == 1 else settings.workers
    if workers < settings.workers:
        log.warning("memory holds %d workers of these agents, not %d", workers, settings.workers)
    if all(api for _, api in map(_place, parts)):
        workers = 1  # one process keeps the server's pace and the run's budget
    can_span = all(part.plan.agent["engine"] == "vllm" for part in parts)
    size = share(nodes, workers, gpus, len(parts), parallel, can_span=can_span)
    teams = [
        Team(
            size,
            settings.concurrency,
            debug=cluster.debug,
            seats=seats,
            first=number * size.replicas,
            wedged_seconds=settings.wedged_seconds,
        )
        for number in range(1 if cluster.debug else size.teams)
    ]

    async def collect(team: Team, part: Part) -> None:
        try:
            await _collect(run_dir, team, part, progress)
        except UserError as error:
            faults.append(error)

    await work_through(teams, parts, collect, progress)


def _parts(
    config: RunConfig, run_dir: RunDir, item: Any, cluster: Cluster, faults: list[UserError]
) -> list[Part]:
    """The parts of one benchmark; its tasks and pools are written when an agent can use them."""
    from cluster.collect_tables import of_another_benchmark
    from cluster.provenance import record
    from jobs.tasks import opened
    from sentinel.task_table import choose, draw_pools

    with opened(item) as benchmark:
        fingerprint, dialect = benchmark.fingerprint(), benchmark.dialect
        refused = of_another_benchmark(run_dir, benchmark.name, fingerprint)
        if refused:  # their tasks stay as they are
            faults += refused
            return []
        tasks, cut = benchmark.tasks(), config.pools
        manifest = draw_pools(
            benchmark, tasks, cut.seed, cut.calibration, cut.heldout, cut.manifest_file
        )
        chosen = choose(tasks, manifest.pool, config.collect.limit, config.seed)
    parts = []
    for agent in (a for b, a in config.pairs if b.name == item.name):
        try:
            parts.append(
                _part(config, run_dir, item, agent, chosen, fingerprint, dialect, cluster.gpus)
            )
        except UserError as error:
            faults.append(error)
    if parts:
        with run_dir.lock("tasks", wait=60):  # elements of an array write the same ones
            _write_tasks(config, run_dir, manifest, chosen, fingerprint)
        record(run_dir, {item.name: fingerprint})
    return parts


def _write_tasks(
    config: RunConfig, run_dir: RunDir, manifest: Manifest, chosen: list[Task], fingerprint: str
) -> None:
    """Write the tasks table and the pools' manifest.

    Raises UserError where heads were fitted on other tasks, pools or folds, and writes nothing.
    """
    from cluster import files
    from cluster.ledger import Ledger
    from sentinel import splits, task_table

    benchmark, folds, seed = manifest.benchmark, config.heads.folds, config.pools.seed
    name, digest = files.safe_name(benchmark), manifest.hash()
    source = files.digest([fingerprint, digest, [t.task_id for t in chosen], folds, seed])
    fitted = run_dir.parts("heads", benchmark, None)
    earlier = run_dir.table_source("tasks", benchmark, None)
    if earlier not in (None, source) and any(fitted.rglob("*.done.json")):
        raise run_dir.changed("heads", benchmark, None, fitted)
    table = task_table.task_table(chosen, manifest.pool, folds, seed)
    splits.write_manifest(run_dir.root / "manifests" / f"{name}.json", manifest)
    ledger = Ledger.beside(run_dir.root).folder
    splits.write_manifest(ledger / f"{name}.{digest[:16]}.manifest.json", manifest)
    if not run_dir.has_table("tasks", benchmark, None, source):
        run_dir.write_table("tasks", benchmark, None, table, stage="collect", source=source)


def _part(
    config: RunConfig,
    run_dir: RunDir,
    item: Any,
    agent: Any,
    tasks: list[Task],
    fingerprint: str,
    dialect: Dialect,
    gpus: int,
) -> Part:
    from cluster import collect_tables
    from cluster.engines import agent_hash
    from cluster.provenance import note_monitor
    from cluster.replica import Job, Plan
    from jobs import obey
    from jobs.tasks import cache_dir
    from sentinel.episodes import episode_id

    mapping, settings = agent.model_dump(exclude_none=True), config.collect
    if mapping["device"] == "auto":
        mapping["device"] = "cuda" if gpus and agent.engine != "openai" else "cpu"
    if settings.budget_usd is not None:
        mapping["budget_usd"] = settings.budget_usd
    if agent.engine == "openai":
        mapping["spend_dir"] = str(run_dir.root / "spend")
    max_tokens = settings.max_tokens if agent.max_tokens is None else agent.max_tokens
    identity = agent_hash(mapping)
    inputs: dict[str, Any] = {
        "agent": identity,
        "benchmark": fingerprint,
        "collect": [max_tokens, settings.temperature],
        "seed": config.seed if settings.temperature > 0 else None,
    }
    orders = obey.orders(
        config,
        run_dir,
        item,
        agent,
        agent_hash=identity,
        fingerprint=fingerprint,
        dialect=dialect,
    )
    if orders is not None:
        inputs["stop_with"] = orders.inputs
    input_hash = collect_tables.claim(run_dir, item.name, agent.name, inputs)
    if orders is not None:
        note_monitor(run_dir, item.name, agent.name, asdict(orders))
    plan = Plan(
        run_root=str(run_dir.root),
        cache=str(cache_dir()),
        benchmark=item.mapping(),
        agent=mapping,
        agent_hash=identity,
        max_tokens=max_tokens,
        temperature=settings.temperature,
        seed=config.seed,
        gpus=agent.tensor_parallel if mapping["device"] == "cuda" else 0,
        tokens_in_flight=settings.tokens_in_flight,
        orders=orders,
    )
    expected = [
        Job(episode_id(item.name, agent.name, task.task_id, rollout), task, rollout)
        for rollout in range(settings.rollouts)
        for task in (replace(t, meta=dict(t.meta)) for t in tasks)  # a view does not travel
    ]
    ids = [job.episode_id for job in expected]
    complete = collect_tables.is_compacted(
        run_dir, item.name, agent.name, ids, input_hash, orders is not None
    )
    done = set(ids) if complete else collect_tables.finished(run_dir, item.name, agent.name)
    missing = [job for job in expected if job.episode_id not in done]
    fits = _check(mapping, plan.gpus) if missing else None
    return Part(plan, input_hash, expected, missing, complete, fits)


def _check(mapping: dict[str, Any], gpus: int) -> int | None:
    """Replicas that a machine's memory holds. Raises UserError where the agent cannot run here."""
    from cluster.engines import check_agent, fit

    if mapping["engine"] not in ("transformers", "vllm"):
        check_agent(mapping)
        return None
    found = fit.check_agent(mapping, gpus)
    if found is None or found.device_gb is None or gpus:  # each replica has devices of its own
        return None
    return max(1, int(found.device_gb // found.least_gb))


async def _collect(run_dir: RunDir, team: Team, part: Part, progress: Progress) -> None:
    from cluster.expected import expected_lengths

    start = time.perf_counter()
    progress.note = f"{part.plan.where}, {len(team.units)} workers"
    name = part.plan.benchmark["name"]
    lengths = expected_lengths(run_dir, name, [job.task for job in part.missing])
    jobs = [replace(job, expected=lengths[job.task.task_id]) for job in part.missing]
    try:
        tally = await team.collect(part.plan, jobs, progress)
    finally:
        _record(run_dir, part, team.tally, time.perf_counter() - start)
    if tally.stopped is not None:
        left = len(jobs) - tally.episodes
        print(
            f"sentinel: {part.plan.where} stopped: {tally.stopped}; {left} episodes are left",
            file=sys.stderr,
        )
        return
    # In a thread: other teams' replicas are watched meanwhile.
    await asyncio.to_thread(_compact, run_dir, part)


def _record(run_dir: RunDir, part: Part, tally: Tally, seconds: float) -> None:
    run_dir.metric(
        "collect",
        event="collected",
        benchmark=part.plan.benchmark["name"],
        agent=part.plan.agent["name"],
        episodes=tally.episodes,
        failed=tally.failed,
        turns=tally.turns,
        generated_tokens=tally.generated_tokens,
        cost_usd=tally.cost_usd,
        by_replica=tally.by_replica,
        deaths=tally.deaths,
        stopped=tally.stopped,
        seconds=round(seconds, 3),
        **({"monitored": dict(tally.ended)} if part.plan.orders is not None else {}),
    )


def _compact(run_dir: RunDir, part: Part) -> None:
    from cluster import collect_tables

    if not part.complete:
        ids = [job.episode_id for job in part.expected]
        names = part.plan.benchmark["name"], part.plan.agent["name"]
        watched = part.plan.orders is not None
        collect_tables.compact(run_dir, *names, ids, part.input_hash, watched)
