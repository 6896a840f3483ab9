"""`sentinel audit`: is it the outcome that the heads read, or an artefact? On the train pool alone.

Reads the prefixes and scores of stage heads and the table `features`; writes the tables `audit`
(baselines, controls, duplicates, seed variance) and `feature_screen`. A part per agent for each of
the cheap checks, a part per fold for what fits the heads again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster import files
from cluster.audit_stages import (
    AUDIT_STAGE,
    BATTERY,
    SCREEN,
    Item,
    PoolItem,
    RefitItem,
    audit_part,
    placed,
)
from cluster.head_stages import HEADS, SNAPSHOTS, Where
from cluster.pool import ItemError
from cluster.progress import Progress
from jobs.heads import head_device, head_settings
from sentinel.audit.measure import row
from sentinel.audit.refits import DETERMINISTIC, LOOP, NOT_RUN, SEEDS, Fold, loop_row, seed_rows
from sentinel.errors import UserError
from sentinel.heads.config import CORRECTNESS
from sentinel.heads.config import HEADS as NAMES
from sentinel.tables import AUDIT

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

log = logging.getLogger(__name__)
STAGE = AUDIT_STAGE
VERSION = 1
"""Raised whenever a rule of the audit changes what finished parts would hold."""
SUMMARY = "summary"


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Audit every agent whose heads have scored; finished parts are kept.

    An item that fails is logged with its cause and leaves its agent's tables as they were.
    """
    items: dict[Item, str] = {}
    places = []
    for benchmark, agent in config.pairs:
        where = Where(str(run_dir.root), benchmark.name, agent.name)
        if run_dir.table_path("scores", benchmark.name, agent.name).exists():
            places.append(where)
            items |= _items(config, run_dir, cluster, where)
    missing = [
        i
        for i, digest in items.items()
        if not run_dir.is_done(STAGE, i.where.benchmark, i.where.agent, i.name, digest)
    ]
    missing.sort(key=lambda i: not isinstance(i, RefitItem))  # the longest first
    failed: set[Where] = set()
    faults: list[UserError] = []
    gpus = 1 if any(isinstance(i, RefitItem) and i.device == "cuda" for i in items) else 0
    with Progress(
        STAGE, len(items), done=len(items) - len(missing), unit="checks", run_dir=run_dir
    ) as progress:
        for item, result in cluster.map(
            STAGE, audit_part, missing, num_gpus=gpus, progress=progress
        ):
            place = item.where.benchmark, item.where.agent
            if isinstance(result, ItemError):
                failed.add(item.where)
                log.error("%s of %s/%s: %s", item.name, *place, result)
                run_dir.metric(STAGE, event="failed", item=item.name, cause=str(result))
                if isinstance(result.error, UserError):
                    faults.append(result.error)
                continue
            run_dir.commit(STAGE, *place, item.name, result, items[item])
    for where in places:
        if where not in failed:
            _compact(config, run_dir, where, items)
    if faults:
        raise faults[0]


def _items(config: RunConfig, run_dir: RunDir, cluster: Cluster, where: Where) -> dict[Item, str]:
    """The parts of an agent with the hash of what each depends on."""
    audit = config.audit
    pool_hash = _pool_hash(run_dir, where)
    shared = {"resamples": audit.resamples, "seed": audit.seed}
    battery = {"permutations": audit.permutations, **shared}
    screen = {**shared, "estimator_seed": config.decide.estimator_seed}
    found: dict[Item, str] = {}
    for name, settings in ((BATTERY, battery), (SCREEN, screen)):
        found[PoolItem(where, name, settings)] = files.digest([VERSION, pool_hash, settings])
    for item in _refits(config, run_dir, cluster, where):
        heads = {**item.heads, "device": None}
        found[item] = files.digest(
            [VERSION, pool_hash[:1], heads, item.seed, item.shuffle, item.name]
        )
    return found


def _refits(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, where: Where
) -> Iterator[RefitItem]:
    tasks = run_dir.read("tasks", where.benchmark)
    folds = sorted({f for f in tasks["fold"].to_pylist() if f is not None})
    judged = tasks["answerable"].null_count < tasks.num_rows
    heads = head_settings(config, where.benchmark)
    device = head_device(heads, cluster)
    seed = config.heads.seed
    if config.audit.loop != "off":
        kind = heads if config.audit.loop == "heads" else {**heads, "kind": "tfidf"}
        shuffle = zlib.crc32(f"{config.audit.seed}/{LOOP}".encode())
        for fold in folds:
            yield RefitItem(
                where, LOOP, CORRECTNESS, config.audit.loop, fold, kind, seed, shuffle, device
            )
    if config.audit.seeds and heads["kind"] != "tfidf":
        for head in NAMES if judged else NAMES[1:]:
            for k in range(1, config.audit.seeds):
                for fold in folds:
                    name = f"seed {seed + k}"
                    yield RefitItem(where, SEEDS, head, name, fold, heads, seed + k, None, device)


def _pool_hash(run_dir: RunDir, where: Where) -> list[str]:
    """Prefixes with their labels, features, scores and ends. Raises UserError without prefixes."""
    place = where.benchmark, where.agent
    marker = files.read_json(run_dir.marker_path(HEADS, *place, SNAPSHOTS)) or {}
    try:
        prefixes = str(marker["tables"][SNAPSHOTS]["sha256"])
    except KeyError:
        raise UserError(
            f"the rendered prefixes of {where.benchmark}/{where.agent} are not in {run_dir.root}",
            f"sentinel heads --run-dir '{run_dir.root}'",
        ) from None
    others = (run_dir.table_hash(name, *place) for name in ("features", "scores", "episodes"))
    return [prefixes, *others]


def _compact(config: RunConfig, run_dir: RunDir, where: Where, items: Mapping[Item, str]) -> None:
    """The two tables of an agent from this config's parts; those of other settings stay out."""
    import pyarrow as pa

    place = where.benchmark, where.agent
    mine = {i.name: i for i in items if i.where == where}
    logits = {
        name: table
        for name, table in run_dir.read_parts(STAGE, *place, "audit_logits")
        if name in mine
    }
    summary = AUDIT.from_rows(placed(where, _summary(config, run_dir, where, logits)))
    for name in ("audit", "feature_screen"):
        parts = [t for item, t in run_dir.read_parts(STAGE, *place, name) if item in mine]
        if name == "audit":
            parts.append(summary)
        whole = pa.concat_tables(parts)
        source = files.digest([t.to_pylist() for t in parts])
        if not run_dir.has_table(name, *place, source):
            run_dir.write_table(name, *place, whole, stage=STAGE, source=source)


def _summary(
    config: RunConfig, run_dir: RunDir, where: Where, logits: Mapping[str, pa.Table]
) -> list[dict[str, Any]]:
    """Rows of the checks that fit the heads again, or why there are none."""
    by: dict[tuple[str, str], dict[str, dict[int, Fold]]] = {}
    for table in logits.values():
        for r in table.slice(0, 1).to_pylist():
            folds = by.setdefault((r["check"], r["target"]), {}).setdefault(r["variant"], {})
            folds[r["fold"]] = _fold(table)
    rows = []
    loop = by.get((LOOP, CORRECTNESS), {})
    if not loop:
        rows.append(row(LOOP, CORRECTNESS, note=f"{NOT_RUN}: audit.loop is off"))
    rows += [loop_row(CORRECTNESS, name, folds) for name, folds in loop.items()]
    own = f"seed {config.heads.seed}"
    for head in NAMES:
        again = by.get((SEEDS, head), {})
        if again:
            rows += seed_rows(head, {own: _own(run_dir, where, head, again), **again})
        elif not config.audit.seeds:
            rows.append(row("seed-sd", head, note=f"{NOT_RUN}: audit.seeds is 0"))
        elif config.heads.kind == "tfidf":
            rows.append(row("seed-sd", head, note=DETERMINISTIC))
        else:
            rows.append(row("seed-sd", head, note="off: no eligible episode"))
    return rows


def _fold(table: pa.Table) -> Fold:
    logit = [np.nan if v is None else v for v in table["logit"].to_pylist()]
    return Fold(
        np.array(table["episode_id"].to_pylist(), dtype=object),
        np.array(table["positive"].to_pylist(), dtype=bool),
        np.array(logit, dtype=np.float64),
    )


def _own(
    run_dir: RunDir, where: Where, head: str, again: Mapping[str, Mapping[int, Fold]]
) -> dict[int, Fold]:
    """The run's own heads on the very episodes of the refits."""
    scores = run_dir.read("scores", where.benchmark, where.agent)
    at: dict[str, tuple[int, float]] = {}
    for r in scores.select(["episode_id", "t", "head", "logit"]).to_pylist():
        known = at.get(r["episode_id"])
        if r["head"] == head and (known is None or r["t"] > known[0]):
            at[r["episode_id"]] = r["t"], np.nan if r["logit"] is None else r["logit"]
    folds = next(iter(again.values()))
    return {
        k: Fold(f.episode_id, f.positive, np.array([at[e][1] for e in f.episode_id]))
        for k, f in folds.items()
    }
