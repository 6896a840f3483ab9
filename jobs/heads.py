"""`sentinel heads`: two text heads per agent, cross-fitted over the folds, and a final pair.

Each (head, fold) is one task and one part: a killed run repeats only what it had not finished.
Train episodes get out-of-fold logits; the final pair, fitted on the whole train pool, scores
calibration and held-out. With `heads.shared` one encoder with both logits is fitted beside the
pair, fold by fold; its scores have a table of their own, which no decision reads.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.head_stages import (
    HEADS,
    SNAPSHOTS,
    FoldItem,
    SnapshotItem,
    Where,
    fit_memory,
    fold_part,
    shared_part,
    snapshot_part,
)
from cluster.head_tokens import QUESTIONS, QuestionItem, question_part
from cluster.pool import ItemError
from cluster.progress import Progress
from jobs.label import labels_hash, primary_label, require_label
from sentinel.errors import UserError
from sentinel.heads.config import HEADS as NAMES
from sentinel.heads.config import SHARED, HeadConfig
from sentinel.heads.encoders import check_encoder
from sentinel.tables import SHARED_SCORES

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

log = logging.getLogger(__name__)
VERSION = 1
"""Raised whenever rendering or training changes what finished parts would hold."""


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Fit and score what is missing; agents without labels are left out (`status` names them).

    A fold whose fit fails is logged with its cause and stays missing; the others finish. So do
    those of other benchmarks where the encoder cannot serve one.
    """
    places = [
        Where(str(run_dir.root), benchmark.name, agent.name)
        for benchmark in config.benchmarks
        for agent in config.agents
        if run_dir.table_path("labels", benchmark.name, agent.name).exists()
    ]
    if config.heads.shared and config.heads.kind != "encoder":
        raise UserError(
            "heads.shared=true needs an encoder to share, and heads.kind is tfidf",
            "set heads.kind=encoder, or heads.shared=false",
        )
    hashes = {where: _input_hash(config, run_dir, where) for where in places}
    items = [i for where in places for i in _folds(config, run_dir, cluster, where)]
    missing = [i for i in items if not _done(run_dir, i.where, i.name, hashes)]
    refused = _refused(config, run_dir, missing)
    _snapshots(config, run_dir, cluster, {w: h for w, h in hashes.items() if w not in refused})
    missing = [i for i in missing if i.where not in refused]
    missing.sort(key=lambda i: i.fold is not None)  # the final pair is the longest: first
    for item in items:
        if item not in missing and item.where not in refused:
            shutil.rmtree(item.checkpoints, ignore_errors=True)  # killed before it was removed
    failed = refused
    without_shared: set[Where] = set()
    function, needs = _how(config, run_dir, cluster, missing)
    total = sum(i.where not in refused for i in items)
    with Progress(
        HEADS, total, done=total - len(missing), unit="fits", run_dir=run_dir
    ) as progress:
        for item, result in cluster.map(HEADS, function, missing, progress=progress, **needs):
            where = item.where
            if isinstance(result, ItemError):
                (without_shared if item.head == SHARED else failed).add(where)
                log.error("%s of %s/%s: %s", item.name, where.benchmark, where.agent, result)
                _metric(run_dir, where, event="fit_failed", item=item.name, cause=str(result))
                continue
            _commit(run_dir, where, item.name, result["tables"], hashes)
            shutil.rmtree(item.checkpoints, ignore_errors=True)
            if "not_fitted" in result["metrics"]:
                cause = result["metrics"]["not_fitted"]
                log.warning("%s of %s/%s: %s", item.name, where.benchmark, where.agent, cause)
            _metric(run_dir, where, event="fit", item=item.name, **result["metrics"])
    for where in places:
        if where not in failed:
            run_dir.compact(HEADS, where.benchmark, where.agent, ["scores"])
    shared = {i.where for i in items if i.head == SHARED} - failed - without_shared
    _beside(run_dir, cluster, [where for where in places if where in shared])


def _refused(config: RunConfig, run_dir: RunDir, missing: list[FoldItem]) -> set[Where]:
    """Agents whose encoder cannot do what is missing: each of these fits has failed, and why."""
    faults: dict[str, UserError] = {}
    for benchmark in dict.fromkeys(i.where.benchmark for i in missing):
        try:
            check_encoder(HeadConfig.of(head_settings(config, benchmark)))
        except UserError as fault:
            faults[benchmark] = fault
    refused = [item for item in missing if item.where.benchmark in faults]
    for item in refused:
        cause = str(faults[item.where.benchmark])
        _metric(run_dir, item.where, event="fit_failed", item=item.name, cause=cause)
    for where in dict.fromkeys(item.where for item in refused):
        log.error("heads of %s/%s: %s", where.benchmark, where.agent, faults[where.benchmark])
    return {item.where for item in refused}


def _beside(run_dir: RunDir, cluster: Cluster, places: list[Where]) -> None:
    """Gather the scores of the shared encoder and measure them beside the pair's, once."""
    new = []
    for where in places:
        place = SHARED_SCORES.name, where.benchmark, where.agent
        before = run_dir.table_source(*place)
        run_dir.compact(HEADS, where.benchmark, where.agent, [SHARED_SCORES.name])
        if run_dir.table_source(*place) != before:
            new.append(where)
    for where, rows in cluster.map("heads beside", shared_part, new):
        if isinstance(rows, ItemError):
            rows.reraise()
            continue
        for row in rows:
            _metric(run_dir, where, event="shared_encoder", **row)


def _how(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, items: list[FoldItem]
) -> tuple[Callable[[FoldItem], dict[str, Any]], dict[str, Any]]:
    """The function that fits an item, and what its task asks for, as `Cluster.map` takes it.

    Raises UserError where the cluster has fewer devices than a fit has workers, or no DeepSpeed.
    """
    gpu = any(i.device == "cuda" for i in items)
    workers = max((i.workers for i in items), default=1)
    if workers == 1:
        return fold_part, {"num_gpus": _gpu_share(run_dir, cluster, items) if gpu else 0}
    if cluster.debug:
        log.info("heads.workers=%d: without Ray one process reads the same batches", workers)
        return fold_part, {}
    from cluster.ray_train import check_deepspeed, fold_workers

    devices, word = (cluster.gpus, "GPUs") if gpu else (cluster.cpus, "CPUs")
    if workers > devices:
        raise UserError(
            f"heads.workers={workers}, and the cluster has {devices} {word}",
            f"set heads.workers to at most {devices}",
        )
    check_deepspeed(config.heads.zero_stage)
    # The task itself only waits for its workers, which ask for the devices.
    return fold_workers, {"num_cpus": 0, "max_in_flight": devices // workers}


def _gpu_share(run_dir: RunDir, cluster: Cluster, items: list[FoldItem]) -> float:
    """The share of a GPU that each fit asks for: measured once, on the first item's settings."""
    from sentinel.heads.memory import Peak, gpu_share

    peak, cause = Peak(None, None), None
    if cluster.debug or items[0].settings["kind"] == "tfidf":
        cause = "not measured here"
    else:
        for _, found in cluster.map("heads memory", fit_memory, items[:1], num_gpus=1):
            if isinstance(found, ItemError):
                cause = str(found)
            else:
                peak = Peak(found["fit_bytes"], found["device_bytes"])
    share = gpu_share(peak)
    measured = {"fit_bytes": peak.fit, "device_bytes": peak.device, "cause": cause}
    _metric(run_dir, items[0].where, event="fit_memory", gpu_share=share, **measured)
    return share


def _snapshots(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, hashes: dict[Where, str]
) -> None:
    lacking = [where for where in hashes if not _done(run_dir, where, SNAPSHOTS, hashes)]
    questions = _questions(config, run_dir, cluster, sorted({w.benchmark for w in lacking}))
    missing = [
        SnapshotItem(
            where,
            config.benchmark(where.benchmark).mapping(),
            primary_label(config, run_dir, where.benchmark),
            config.decide.drop_stopped,
            head_settings(config, where.benchmark),
            questions.get(where.benchmark, ""),
        )
        for where in lacking
    ]
    for item in missing:
        require_label(run_dir, item.where.benchmark, item.where.agent, item.label)
    for item, result in cluster.map(SNAPSHOTS, snapshot_part, missing):
        if isinstance(result, ItemError):
            result.reraise()
            continue
        _commit(run_dir, item.where, SNAPSHOTS, result["tables"], hashes)
        rows = result["tables"][SNAPSHOTS].num_rows
        _metric(run_dir, item.where, event="snapshots", rows=rows, dropped=result["dropped"])


def _questions(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, benchmarks: list[str]
) -> dict[str, str]:
    """The part of each benchmark that holds its questions' token ids; none for TF–IDF heads.

    It is named by what it depends on: another encoder or task makes another part.
    """
    if config.heads.kind != "encoder":
        return {}
    items = {}
    for name in benchmarks:
        settings = head_settings(config, name)
        tasks = run_dir.table_hash("tasks", name, None, without=("pool", "fold"))
        digest = files.digest([VERSION, settings["encoder"], tasks])
        where = Where(str(run_dir.root), name)
        items[QuestionItem(where, f"{QUESTIONS}-{digest[:12]}", settings)] = digest
    missing = [
        i
        for i, d in items.items()
        if not run_dir.is_done(HEADS, i.where.benchmark, None, i.name, d)
    ]
    for item, tables in cluster.map(QUESTIONS, question_part, missing):
        if isinstance(tables, ItemError):
            tables.reraise()
            continue
        run_dir.commit(HEADS, item.where.benchmark, None, item.name, tables, items[item])
    return {i.where.benchmark: i.name for i in items}


def _folds(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, where: Where
) -> Iterator[FoldItem]:
    """The items of an agent; a head whose notion the benchmark lacks is left out."""
    tasks = run_dir.read("tasks", where.benchmark)
    folds = sorted({f for f in tasks["fold"].to_pylist() if f is not None})
    judged = tasks["answerable"].null_count < tasks.num_rows
    settings = head_settings(config, where.benchmark)
    device = head_device(settings, cluster)
    heads = NAMES if judged else NAMES[1:]
    for head in (*heads, SHARED) if config.heads.shared and judged else heads:
        for fold in (*folds, None):
            yield FoldItem(where, head, fold, settings, config.heads.seed, device)


def head_device(settings: Mapping[str, Any], cluster: Cluster) -> str:
    """Where heads of these settings (a `heads` section) run: a nano encoder needs no GPU."""
    device = str(settings["device"])
    if device != "auto":
        return device
    nano = HeadConfig.of(settings).nano_world is not None
    return "cuda" if cluster.gpus and not nano else "cpu"


def head_settings(config: RunConfig, benchmark: str) -> dict[str, Any]:
    """The `heads` section for one benchmark: `encoder: nano` reads with that world's tokenizer."""
    from sentinel.nano import text_world

    settings = config.heads.model_dump(exclude={"shared"})  # no fit depends on it
    if settings["encoder"] == "nano":
        item = config.benchmark(benchmark)
        settings["encoder"] = f"nano:{text_world(item.kind or item.name)}"
    return settings


def _input_hash(config: RunConfig, run_dir: RunDir, where: Where) -> str:
    place = where.benchmark, where.agent
    tables = [run_dir.table_hash(name, *place) for name in ("episodes", "turns")]
    tasks = run_dir.table_hash("tasks", where.benchmark, None)
    label = primary_label(config, run_dir, where.benchmark)
    tables.append(labels_hash(run_dir, *place, label))
    settings = [config.heads.hash(), label, config.decide.drop_stopped]
    return files.digest([VERSION, settings, tasks, *tables])


def _done(run_dir: RunDir, where: Where, item: str, hashes: dict[Where, str]) -> bool:
    return run_dir.is_done(HEADS, where.benchmark, where.agent, item, hashes[where])


def _commit(
    run_dir: RunDir, where: Where, item: str, tables: dict[str, Any], hashes: dict[Where, str]
) -> None:
    run_dir.commit(HEADS, where.benchmark, where.agent, item, tables, hashes[where])


def _metric(run_dir: RunDir, where: Where, **values: object) -> None:
    run_dir.metric(HEADS, benchmark=where.benchmark, agent=where.agent, **values)
