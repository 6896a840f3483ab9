"""`sentinel label`: verdicts and trajectory features of every finished episode.

Each benchmark's reference queries are executed once; then the episodes of each agent are labelled
and measured in parts, in parallel, and compacted to the tables `labels` and `features`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.head_stages import Where
from cluster.label_stages import GOLDS, LABEL, GoldItem, LabelItem, label_part, run_gold
from cluster.pool import ItemError
from cluster.progress import Progress
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

PART = 400
"""Episodes per part."""
VERSION = 2
"""Raised whenever a rule of labels or features changes what finished parts would hold."""


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Label and measure what was collected and is not labelled yet.

    Agents without collected episodes are left out (`sentinel status` names them). Raises UserError
    when a benchmark's data is missing, and, when the others are done, for agents some of whose
    episodes a monitor ended (unless `decide.drop_stopped`).
    """
    hashes: dict[tuple[str, str], str] = {}
    missing: list[LabelItem] = []
    faults: list[UserError] = []
    total = 0
    for benchmark in config.benchmarks:
        agents = [
            a.name
            for a in config.agents
            if run_dir.table_path("turns", benchmark.name, a.name).exists()
            and not _monitored(config, run_dir, benchmark.name, a.name, faults)
        ]
        if not agents:
            continue
        where = Where(str(run_dir.root), benchmark.name)
        world = _gold(config, benchmark, where, cluster)
        for agent in agents:
            items = _items(run_dir, Where(where.run_root, benchmark.name, agent), world)
            hashes[benchmark.name, agent] = _input_hash(run_dir, benchmark.name, agent, world)
            total += len(items)
            missing += [
                i
                for i in items
                if not run_dir.is_done(
                    LABEL, benchmark.name, agent, i.name, hashes[benchmark.name, agent]
                )
            ]
    errors: list[ItemError] = []
    with Progress(
        LABEL, total, done=total - len(missing), unit="parts", run_dir=run_dir
    ) as progress:
        for item, result in cluster.map(LABEL, label_part, missing, progress=progress):
            if isinstance(result, ItemError):
                errors.append(result)
                continue
            place = item.where.benchmark, item.where.agent
            run_dir.commit(LABEL, *place, item.name, result, hashes[place])
    if errors:
        errors[0].reraise()
    for benchmark_name, agent in hashes:
        run_dir.compact(LABEL, benchmark_name, agent, ["labels", "features"])
        _count(run_dir, benchmark_name, agent)
    for fault in faults[1:]:
        print(f"sentinel: {fault}", file=sys.stderr)
    if faults:
        raise faults[0]


def _monitored(
    config: RunConfig, run_dir: RunDir, benchmark: str, agent: str, faults: list[UserError]
) -> bool:
    """Whether an agent is left out because a monitor ended episodes of it; says so in `faults`."""
    from collections import Counter

    from sentinel.tables import MONITORED

    if config.decide.drop_stopped:
        return False
    ends = Counter(run_dir.read("episodes", benchmark, agent)["end"].to_pylist())
    counts = ", ".join(f"{ends[end]} {end}" for end in MONITORED if ends[end])
    if counts:
        faults.append(
            UserError(
                f"{benchmark}/{agent}: episodes that a monitor ended have no outcome ({counts})",
                "set decide.drop_stopped=true to drop and count them, or collect without stop_with",
            )
        )
    return bool(counts)


def _gold(config: RunConfig, benchmark: Any, where: Where, cluster: Cluster) -> dict[str, Any]:
    """Execute the reference queries unless that is done; the schema and clock are always read."""
    from jobs.tasks import cache_dir

    run_dir = where.run_dir
    tasks = run_dir.table_hash("tasks", where.benchmark, None, without=("pool", "fold"))
    digest = files.digest([VERSION, benchmark.hash(), tasks])
    done = run_dir.is_done(LABEL, where.benchmark, None, GOLDS, digest)
    item = GoldItem(where, benchmark.mapping(), str(cache_dir()), execute=not done)
    world: dict[str, Any] = {"digest": digest}
    for _, found in cluster.map("gold", run_gold, [item]):
        if isinstance(found, ItemError):
            found.reraise()
        else:
            world |= found
    if not done:
        run_dir.commit(LABEL, where.benchmark, None, GOLDS, world["tables"], digest)
        results = world["tables"][GOLDS]["result"].to_pylist()
        run_dir.metric(
            LABEL,
            event="gold",
            benchmark=where.benchmark,
            queries=len(results),
            failed=sum(json.loads(r).get("error") is not None for r in results),
        )
    return world


def _items(run_dir: RunDir, where: Where, world: dict[str, Any]) -> list[LabelItem]:
    from sentinel.labels import SQL_LABELS, SUCCESS

    episodes = run_dir.read("episodes", where.benchmark, where.agent)
    ids = sorted(episodes["episode_id"].to_pylist())
    verdicts = episodes["success"].null_count < episodes.num_rows
    labels = (
        *(SQL_LABELS if world["schema"] is not None else ()),
        *((SUCCESS,) if verdicts else ()),
    )
    return [
        LabelItem(
            where,
            f"part-{start // PART:04d}",
            tuple(ids[start : start + PART]),
            labels or (SUCCESS,),
            world["schema"],
            world["clock"],
        )
        for start in range(0, len(ids), PART)
    ]


def _input_hash(run_dir: RunDir, benchmark: str, agent: str, world: dict[str, Any]) -> str:
    from sentinel.sql.compare import SCORER_VERSION

    tables = [run_dir.table_hash(name, benchmark, agent) for name in ("episodes", "turns")]
    return files.digest([VERSION, SCORER_VERSION, world["digest"], *tables])


def _count(run_dir: RunDir, benchmark: str, agent: str) -> None:
    """Verdicts by label and by the rule that decided, as metrics."""
    labels = run_dir.read("labels", benchmark, agent)
    grouped = labels.group_by(["label", "source"]).aggregate([("episode_id", "count")])
    for row in grouped.to_pylist():
        run_dir.metric(
            LABEL,
            event="verdicts",
            benchmark=benchmark,
            agent=agent,
            label=row["label"],
            source=row["source"],
            episodes=row["episode_id_count"],
        )


def primary_label(config: RunConfig, run_dir: RunDir, benchmark: str) -> str:
    """The label that says what is correct on a benchmark.

    The run's `label:` is for text-to-SQL. Where no task knows of being answerable, an environment
    judges, and its own verdict is the label.
    """
    from sentinel.labels import SUCCESS

    answerable = run_dir.read("tasks", benchmark)["answerable"]
    return SUCCESS if answerable.null_count == len(answerable) else config.label


def labels_hash(run_dir: RunDir, benchmark: str, agent: str, label: str) -> str:
    """Hash of the verdicts that a stage reads whose primary label is `label`.

    Verdicts of judges that are not that label are left out: one that is asked beside it, or asked
    again, changes no finished work.
    """
    import pyarrow.compute as pc

    from cluster.parquet_files import content_hash
    from sentinel.judge.prompt import PREFIX

    table = run_dir.read("labels", benchmark, agent)
    names = table["label"]
    other = pc.and_(pc.starts_with(names, PREFIX), pc.not_equal(names, label))
    return content_hash(table.filter(pc.invert(other)) if pc.any(other).as_py() else table)


def require_label(run_dir: RunDir, benchmark: str, agent: str, label: str) -> None:
    """Raise UserError when the primary label was not computed for an agent."""
    found = sorted(set(run_dir.read("labels", benchmark, agent)["label"].to_pylist()))
    if label not in found:
        raise UserError(
            f"no label {label!r} for {benchmark}/{agent} (there are: {', '.join(found)})",
            "set label= to one of these",
        )
    if label.startswith("judge:"):
        _require_verdicts(run_dir, benchmark, agent, label)


def _require_verdicts(run_dir: RunDir, benchmark: str, agent: str, label: str) -> None:
    """Raise UserError while the judge lacks more verdicts than the run tolerates."""
    import pyarrow.compute as pc

    from sentinel.judge.rules import UNJUDGED

    table = run_dir.read("labels", benchmark, agent)
    mine = table.filter(pc.equal(table["label"], label))
    left = pc.sum(pc.equal(mine["source"], UNJUDGED)).as_py() or 0
    recorded = files.read_json(run_dir.config_path) or {}
    if left > int((recorded.get("judge") or {}).get("tolerated", 0)):
        raise UserError(
            f"the judge has no verdict on {left} answers of {benchmark}/{agent}",
            f"ask again: sentinel run --run-dir '{run_dir.root}', or go on without them: "
            f"judge.tolerated={left}",
        )
