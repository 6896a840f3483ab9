"""Stage probes: every scorer of the abort cascade on every agent, in both modes.

An agent's rounds are laid out once; then each (mode, scorer) is one task and one part. Writes the
tables `round_scores_paper` and `round_scores_strict`, and `probes/BENCHMARK/AGENT/MODE/` with the
fitted coefficients. A cell whose folds or hidden states are missing is named and stops; the others
finish.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cluster import files
from cluster.activation_tables import chosen_layer
from cluster.head_stages import Where
from cluster.pool import ItemError
from cluster.probe_stages import (
    PROBES,
    ROUNDS,
    RoundsItem,
    ScorerItem,
    probe_folder,
    rounds_part,
    scorer_part,
)
from cluster.progress import Progress
from jobs.heads import head_device
from jobs.label import labels_hash, primary_label, require_label
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

log = logging.getLogger(__name__)
VERSION = 1
"""Raised whenever a change of rules would change what finished parts hold."""
_OF_ROUNDS = (*("gates", "error_words", "prompt_price", "generated_price", "cost_unit"),)
_OF_SCORES = (*_OF_ROUNDS, "seed", "unit", "after_feedback")
_NEED_ACTIVATIONS = ("probe", "stacking")


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Score what is missing. Agents without labels are left out (`status` names them).

    A scorer that fails is logged with its cause, and its cell's table of that mode stays missing.
    """
    places = [
        Where(str(run_dir.root), benchmark.name, agent.name)
        for benchmark in config.benchmarks
        for agent in config.agents
        if run_dir.table_path("labels", benchmark.name, agent.name).exists()
    ]
    ready = _rounds(config, run_dir, cluster, places)
    failed: set[tuple[Where, str]] = set()
    missing: list[ScorerItem] = []
    hashes: dict[ScorerItem, str] = {}
    total = 0
    for where, source in ready.items():
        for mode in config.cascade.modes:
            for item in _items(config, run_dir, cluster, where, mode, failed):
                total += 1
                hashes[item] = _hash(config, run_dir, item, source)
                if not _done(run_dir, item, hashes[item]):
                    missing.append(item)
    # The slowest first: text heads, then the widest rows.
    order = ("heads", "stacking", "probe", "random", "tfidf")
    missing.sort(key=lambda i: order.index(i.scorer) if i.scorer in order else len(order))
    gpus = 1 if any(i.device == "cuda" for i in missing) else 0
    with Progress(
        PROBES, total, done=total - len(missing), unit="scorers", run_dir=run_dir
    ) as progress:
        for item, result in cluster.map(
            PROBES, scorer_part, missing, num_gpus=gpus, progress=progress
        ):
            if isinstance(result, ItemError):
                failed.add((item.where, item.mode))
                _failed(run_dir, item.where, item.name, result)
                continue
            _commit(run_dir, item, result, hashes[item])
    for where in ready:
        for mode in config.cascade.modes:
            if (where, mode) not in failed:
                _compact(config, run_dir, where, mode, hashes)


def _rounds(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, places: list[Where]
) -> dict[Where, str]:
    """Lay out the rounds of every agent; where that worked, the hash of what they come from."""
    hashes: dict[Where, str] = {}
    missing = []
    for where in places:
        place = where.benchmark, where.agent
        label = primary_label(config, run_dir, where.benchmark)
        require_label(run_dir, *place, label)
        tables = [run_dir.table_hash(name, *place) for name in ("episodes", "turns")]
        tables.append(labels_hash(run_dir, *place, label))
        # The cascade has pools and folds of its own.
        tasks = run_dir.table_hash("tasks", where.benchmark, None, without=("pool", "fold"))
        settings = {name: getattr(config.cascade, name) for name in _OF_ROUNDS}
        hashes[where] = files.digest(
            [VERSION, settings, label, config.decide.drop_stopped, tasks, *tables]
        )
        if not run_dir.is_done(PROBES, *place, ROUNDS, hashes[where]):
            benchmark = config.benchmark(where.benchmark).mapping()
            drop = config.decide.drop_stopped
            missing.append(RoundsItem(where, benchmark, config.cascade.model_dump(), label, drop))
    for item, result in cluster.map(ROUNDS, rounds_part, missing):
        if isinstance(result, ItemError):
            del hashes[item.where]
            _failed(run_dir, item.where, ROUNDS, result)
            continue
        where = item.where
        run_dir.commit(
            PROBES, where.benchmark, where.agent, ROUNDS, result["tables"], hashes[where]
        )
    return hashes


def _items(
    config: RunConfig,
    run_dir: RunDir,
    cluster: Cluster,
    where: Where,
    mode: str,
    failed: set[tuple[Where, str]],
) -> list[ScorerItem]:
    """The scorers of a mode; none of them, with the cause named, where one lacks its layer."""
    scorers = config.cascade.scorers_of(mode)
    layer: int | None = None
    if set(scorers) & set(_NEED_ACTIVATIONS):
        try:
            layer = chosen_layer(where, mode)
        except UserError as error:
            failed.add((where, mode))
            _failed(run_dir, where, f"{mode} mode", ItemError("user", str(error), error=error))
            return []
    device = head_device(config.heads.model_dump(), cluster) if "heads" in scorers else "cpu"
    return [
        ScorerItem(
            where,
            mode,
            scorer,
            config.cascade.model_dump(),
            config.heads.model_dump(),
            # Noise of the probe's width reads the width of its hidden states, and nothing else.
            layer if scorer in (*_NEED_ACTIVATIONS, "random") else None,
            device if scorer == "heads" else "cpu",
        )
        for scorer in scorers
    ]


def _hash(config: RunConfig, run_dir: RunDir, item: ScorerItem, source: str) -> str:
    settings = {name: item.cascade[name] for name in _OF_SCORES}
    parts = [source, settings, item.mode, item.scorer, item.layer]
    if item.layer is not None:
        # Not the hash of its content: of a large model's run it holds gigabytes.
        place = item.where.benchmark, item.where.agent
        parts.append(run_dir.table_source("activations", *place))
    if item.scorer == "heads":
        parts.append(config.heads.hash("folds"))
    return files.digest(parts)


def _done(run_dir: RunDir, item: ScorerItem, digest: str) -> bool:
    where = item.where
    facts = probe_folder(where, item.mode) / f"{item.scorer}.json"
    return (
        run_dir.is_done(PROBES, where.benchmark, where.agent, item.name, digest) and facts.exists()
    )


def _commit(run_dir: RunDir, item: ScorerItem, result: dict[str, object], digest: str) -> None:
    where = item.where
    run_dir.commit(PROBES, where.benchmark, where.agent, item.name, result["tables"], digest)  # type: ignore[arg-type]
    facts = dict(result["facts"])  # type: ignore[call-overload]
    for row in facts.pop("rounds"):
        for reason in row["reasons"]:
            log.warning(
                "%s of %s/%s, round %d: %s",
                *(item.name, where.benchmark, where.agent, row["round"], reason),
            )
    run_dir.metric(
        PROBES,
        event="scored",
        benchmark=where.benchmark,
        agent=where.agent,
        item=item.name,
        layer=facts["layer"],
        refused_seeds=facts.get("refused_seeds", []),
    )


def _failed(run_dir: RunDir, where: Where, item: str, result: ItemError) -> None:
    log.error("%s of %s/%s: %s", item, where.benchmark, where.agent, result)
    run_dir.metric(
        PROBES,
        event="failed",
        benchmark=where.benchmark,
        agent=where.agent,
        item=item,
        cause=str(result),
    )


def _compact(
    config: RunConfig,
    run_dir: RunDir,
    where: Where,
    mode: str,
    hashes: dict[ScorerItem, str],
) -> None:
    """The mode's table from the parts of the scorers in use; parts of others stay out."""
    import pyarrow as pa

    name = f"round_scores_{mode}"
    place = where.benchmark, where.agent
    wanted = {i.name: h for i, h in hashes.items() if i.where == where and i.mode == mode}
    source = files.digest(wanted)
    if run_dir.has_table(name, *place, source):
        return
    parts = [t for item, t in run_dir.read_parts(PROBES, *place, name) if item in wanted]
    run_dir.write_table(name, *place, pa.concat_tables(parts), stage=PROBES, source=source)
