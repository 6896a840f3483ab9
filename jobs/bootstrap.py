"""Stage bootstrap: everything read on the held-out pool, with cluster intervals; and the AUROC of
the cascade's scorers at every round (`jobs.probe_auc`).

Reads `prefix_scores` and the frozen monitor; writes the table `intervals` and, beside the monitor,
`evaluation.json` (what the report shows) and `decide.json` (what `sentinel decide` prints for the
same table, byte for byte).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.ledger import Ledger
from cluster.pool import ItemError
from cluster.sweep import Block, sweep
from jobs import probe_auc
from jobs.calibrate import (
    join,
    manifest_hash,
    monitor_folder,
    raise_first,
    settings,
    write_bytes,
)
from jobs.label import labels_hash, primary_label
from jobs.pace import seconds_per_step
from sentinel.decide import DecideConfig, Evaluation, Policy, blocks, driver, from_table
from sentinel.decide.evaluate import interval_table, rescore
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from sentinel.decide.ladder import Statistic
    from sentinel.decide.table import Floats

STAGE = "bootstrap"
DRAWS = "bootstrap-draws"
"""The sweep over blocks of resamples; its parts lie beside those of the stage."""


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Evaluate every agent with a frozen monitor, one task each; finished parts are kept."""
    waiting = []
    for benchmark in config.benchmarks:
        for agent in config.agents:
            names = (benchmark.name, agent.name)
            if not (monitor_folder(run_dir, *names) / "policy.json").exists():
                continue
            if not run_dir.table_path("prefix_scores", *names).exists():
                continue
            _refuse_new_stakes(config, run_dir, *names)
            if _done(config, run_dir, *names):
                probe_auc.compact(config, run_dir, *names)
            else:
                waiting.append(names)
    draws = auroc_draws(config, run_dir, cluster, waiting)
    items = (replace(_item(config, run_dir, *names), draws=draws.get(names)) for names in waiting)
    faults: list[UserError] = []
    for item, result in cluster.map(STAGE, driver.evaluate_item, items):
        if not isinstance(result, ItemError):
            _write(config, run_dir, item, result)
        elif isinstance(result.error, UserError):
            faults.append(result.error)
        else:
            result.reraise()
    probe_auc.run(config, run_dir, cluster)
    raise_first(faults)


def _item(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> driver.Item:
    return driver.Item(
        benchmark,
        agent,
        run_dir.read("prefix_scores", benchmark, agent),
        Policy.load(monitor_folder(run_dir, benchmark, agent)),
        options_of(config, run_dir, benchmark, agent),
    )


def auroc_draws(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, waiting: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], dict[Statistic, Floats]]:
    """Resampled AUROCs of the agents whose blocks `bootstrap.driver` gives to Ray Tune.

    Finished blocks are kept; more resamples add blocks. Raises the error of a block that failed.
    """
    chosen, counted, hashes = [], [], []
    how = config.bootstrap.driver
    for names in waiting if how != "inline" else ():
        item = _item(config, run_dir, *names)
        if how == "tune" or blocks.many(item.table, item.config):
            chosen.append(names)
            counted.append(blocks.count(item.benchmark, item.policy, item.table, item.config))
            prefixes = run_dir.table_hash("prefix_scores", *names)
            hashes.append(files.digest([prefixes, item.policy.hash(), item.config.seed]))
    planned = [
        Block(*chosen[part.index], part.name, part, hashes[part.index])
        for part in blocks.blocks(counted, config.bootstrap.resamples)
    ]
    sweep(cluster, run_dir, DRAWS, planned, blocks.block, counted).reraise()
    found = {}
    for names in chosen:
        wanted = {b.item for b in planned if (b.benchmark, b.agent) == names}
        parts = run_dir.read_parts(DRAWS, *names, "bootstrap_draws")
        found[names] = blocks.gather(table for item, table in parts if item in wanted)
    return found


def options_of(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> DecideConfig:
    """The settings for one agent, with its own seconds per step where `sentinel pace` timed it."""
    options = settings(config)
    if options.seconds_per_step is not None:
        return options
    return replace(options, seconds_per_step=seconds_per_step(run_dir, benchmark, agent))


def _refuse_new_stakes(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> None:
    found = files.read_json(monitor_folder(run_dir, benchmark, agent) / "policy.json") or {}
    new = [lam for lam in settings(config).lambdas if lam not in found.get("stops", ())]
    if new:
        raise UserError(
            f"the monitor of {benchmark}/{agent} has no stop for λ = {', '.join(new)}",
            f"sentinel calibrate --run-dir '{run_dir.root}'",
        )


def _hash(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> str:
    options = settings(config)
    policy = Policy.load(monitor_folder(run_dir, benchmark, agent))
    prefixes = run_dir.table_hash("prefix_scores", benchmark, agent)
    return files.digest([prefixes, policy.hash(), options.resamples, options.seed])


def _items(config: RunConfig) -> list[str]:
    """Parts of an agent; a further λ or share adds parts and leaves the finished ones alone."""
    options = settings(config)
    shares = [f"lambda={lam} pi={share}" for lam in options.lambdas for share in options.shares]
    return ["common", *(f"lambda={lam}" for lam in options.lambdas), *shares]


def _done(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> bool:
    digest = _hash(config, run_dir, benchmark, agent)
    parts = [run_dir.is_done(STAGE, benchmark, agent, i, digest) for i in _items(config)]
    folder = monitor_folder(run_dir, benchmark, agent)
    found = files.read_json(folder / "evaluation.json") or {}
    label = primary_label(config, run_dir, benchmark)
    options = options_of(config, run_dir, benchmark, agent)
    inputs = _inputs(label, options, digest, _judges(run_dir, benchmark, agent, label))
    whole = found.get("inputs") == inputs and (folder / "decide.json").exists()
    return all(parts) and whole


def _inputs(label: str, options: DecideConfig, digest: str, judges: Sequence[str]) -> str:
    """Identity of `evaluation.json`, which holds all stakes and shares at once.

    `judges`: hash of the verdicts of judges besides the primary label, by which it is rescored.
    """
    return files.digest([digest, asdict(options), label, *judges])


def _judges(run_dir: RunDir, benchmark: str, agent: str, label: str) -> list[str]:
    whole = run_dir.table_hash("labels", benchmark, agent)
    return [] if whole == labels_hash(run_dir, benchmark, agent, label) else [whole]


def _write(config: RunConfig, run_dir: RunDir, item: driver.Item, evaluation: Evaluation) -> None:
    benchmark, agent = item.benchmark, item.agent
    folder = monitor_folder(run_dir, benchmark, agent)
    text = driver.dumps(driver.document([(item.policy, evaluation)]))
    write_bytes(folder / "decide.json", text.encode("ascii"))
    looks = Ledger.beside(run_dir.root).looks(benchmark, manifest_hash(run_dir, benchmark), agent)
    digest = _hash(config, run_dir, benchmark, agent)
    label = primary_label(config, run_dir, benchmark)
    whole: dict[str, Any] = {
        **evaluation.summary,
        "benchmark": benchmark,
        "inputs": _inputs(label, item.config, digest, _judges(run_dir, benchmark, agent, label)),
        "rescored": _rescored(config, run_dir, item),
        "ledger": {
            "evaluations": looks.evaluations,
            "monitors": list(looks.monitors),
            "reasons": list(looks.reasons),
        },
    }
    files.write_json(folder / "evaluation.json", whole)
    for name in _items(config):
        lam, share = _place(name)
        chosen = {
            key: value
            for key, value in evaluation.intervals.items()
            if key[2] == lam and (key[3] if key[3].startswith("pi=") else None) == share
        }
        part = interval_table(benchmark, agent, chosen)
        run_dir.commit(STAGE, benchmark, agent, name, {"intervals": part}, digest)
    probe_auc.compact(config, run_dir, benchmark, agent)


def _place(item: str) -> tuple[str | None, str | None]:
    """(λ, stratum π) of a part's name; None where it has none."""
    if item == "common":
        return None, None
    lam, _, share = item.removeprefix("lambda=").partition(" ")
    return lam, share or None


def _rescored(config: RunConfig, run_dir: RunDir, item: driver.Item) -> dict[str, Any]:
    """The ladder under every other label the run has (strict scoring), decisions frozen."""
    labels = run_dir.read("labels", item.benchmark, item.agent).column("label")
    found = {}
    primary = primary_label(config, run_dir, item.benchmark)
    for label in sorted(set(labels.to_pylist()) - {primary}):
        table, _ = join(config, run_dir, item.benchmark, item.agent, label)
        found[label] = rescore(item.policy, from_table(table), item.config)
    return found
