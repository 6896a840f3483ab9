"""The final artifact of stage calibrate: `monitor/BENCHMARK/AGENT/sentinel/`, ready to be copied.

Written once per monitor, from the frozen policy and the final pair of heads beside it. What the
heads cannot supply (scores that came from elsewhere) is named in the log and in the metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import files
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from sentinel.decide.table import Prefixes

log = logging.getLogger(__name__)
STAGE = "calibrate"
FOLDER = "sentinel"
_SEEDS = ("pools.seed", "heads.seed", "decide.estimator_seed", "bootstrap.seed")


def export(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> Path | None:
    """Freeze one agent's monitor; the same one, whole, is left alone.

    Returns its folder, or None where the final heads behind the scores are not in the run.
    """
    from cluster.head_stages import Where
    from jobs.calibrate import monitor_folder
    from jobs.label import primary_label
    from sentinel.benchmarks.registry import load as load_benchmark
    from sentinel.decide import Policy
    from sentinel.monitor import archive, save

    where = Where(str(run_dir.root), benchmark, agent)
    folder = monitor_folder(run_dir, benchmark, agent)
    heads, missing = _heads(where)
    if missing or not heads:
        cause = f"no fitted head of {', '.join(missing) or 'any kind'} in {run_dir.root}"
        log.warning("no monitor of %s/%s: %s", benchmark, agent, cause)
        run_dir.metric(STAGE, event="no_monitor", benchmark=benchmark, agent=agent, cause=cause)
        return None
    policy = Policy.load(folder)
    label = primary_label(config, run_dir, benchmark)
    found = fingerprints(config, run_dir, benchmark, agent)
    hashes = {f"{n}/{f.name}": files.file_hash(f) for n, p in heads.items() for f in _files(p)}
    source = files.digest([policy.to_dict(), hashes, found, label])
    target = folder / FOLDER
    try:
        if archive.read(target).get("source") == source:
            return target
    except UserError:
        pass  # none yet, or a damaged one: it is written anew
    dialect = load_benchmark(config.benchmark(benchmark).mapping()).dialect
    facts = {
        "benchmark": benchmark,
        "agent": agent,
        "fingerprints": found,
        "source": source,
        "training": _training(config, run_dir, benchmark, agent, label),
    }
    digest = save(target, policy, heads, dialect, facts)
    run_dir.metric(STAGE, event="monitor", benchmark=benchmark, agent=agent, monitor=digest)
    return target


def _heads(where: Any) -> tuple[dict[str, Path], list[str]]:
    """Folders of the final heads, and heads that scored but left none."""
    import pyarrow.compute as pc

    from cluster.head_stages import FoldItem
    from sentinel.heads.config import HEADS

    scores = where.run_dir.read("scores", where.benchmark, where.agent)
    final = scores.filter(pc.is_null(scores["fold"]))
    used = final.filter(pc.is_valid(final["logit"]))["head"].unique().to_pylist()
    folders = {name: FoldItem(where, name, None, {}).folder for name in HEADS if name in used}
    missing = [n for n, f in folders.items() if not all(p.is_file() for p in _files(f))]
    return folders, missing


def _files(folder: Path) -> list[Path]:
    from sentinel.monitor.text_heads import FILES

    return [folder / name for name in FILES]


def fingerprints(
    config: RunConfig, run_dir: RunDir, benchmark: str, agent: str
) -> dict[str, dict[str, Any]]:
    """Which tasks and which agent: a monitor of others decides nothing here.

    The agent's `hash` covers its config and weights; a run whose episodes two versions made lists
    both. `collected` is what the episodes depend on beside the agent (data, rules, clock, prompt),
    as collection recorded it; None where the episodes came from elsewhere.
    """
    from cluster.collect_tables import collected_on
    from jobs.calibrate import manifest_hash

    episodes = run_dir.read("episodes", benchmark, agent)
    settings = config.benchmark(benchmark).mapping()
    pools = manifest_hash(run_dir, benchmark)
    return {
        "task": {
            "benchmark": benchmark,
            "pools": pools,
            "settings": files.digest(settings),
            "collected": collected_on(run_dir, benchmark, agent),
            "hash": files.digest([benchmark, pools, settings]),
        },
        "agent": {
            "name": agent,
            "engines": sorted(set(episodes["engine"].to_pylist())),
            "hashes": sorted(set(episodes["agent_hash"].to_pylist())),
        },
    }


def unlike(frozen: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What of a run is another than a monitor's fingerprints say, in words; empty: it is at home.

    Engines may differ (a newer version of the same one); what collection did not record is unknown
    and no difference.
    """
    theirs, ours = frozen["task"], found["task"]
    out = []
    if theirs["benchmark"] != ours["benchmark"]:
        out.append(f"benchmark ({theirs['benchmark']})")
    elif theirs["settings"] != ours["settings"]:
        out.append("benchmark's settings")
    known = theirs.get("collected"), ours.get("collected")
    if None not in known and known[0] != known[1]:
        out.append("data, rules or prompt")
    if theirs["pools"] != ours["pools"]:
        out.append("cut of the pools")
    theirs, ours = frozen["agent"], found["agent"]
    if theirs["name"] != ours["name"]:
        out.append(f"agent ({theirs['name']})")
    elif not set(ours["hashes"]) <= set(theirs["hashes"]):
        out.append("config or weights of the agent")
    return out


def _training(
    config: RunConfig, run_dir: RunDir, benchmark: str, agent: str, label: str
) -> dict[str, Any]:
    """Where the monitor is from: code, versions, seeds, label, settings, and how well it ranks."""
    from cluster import provenance
    from sentinel.decide import from_table

    plain = config.model_dump(mode="json")
    seeds = {name: _at(plain, name) for name in _SEEDS}
    columns = from_table(run_dir.read("prefix_scores", benchmark, agent))
    now = provenance.describe()
    return {
        "run": run_dir.root.name,
        "git": now["git"],
        "python": now["python"],
        "packages": now["packages"],
        "label": label,
        "seeds": {k: v for k, v in seeds.items() if v is not None},
        "heads": plain["heads"],
        "auroc": {
            "train_out_of_fold": _aurocs(columns.in_pool("train")),
            "calibration": _aurocs(columns.in_pool("calibration")),
        },
    }


def _aurocs(pool: Prefixes) -> dict[str, float | None]:
    """Ranking at T: right answers among answered answerable ones, unanswerable among all."""
    from sentinel.bootstrap import auroc

    seen = pool.take(pool.answered & pool.answerable)
    return {
        "correctness": auroc(seen.score[seen.end], seen.good),
        "answerability": auroc(-pool.p_answerable[pool.end], ~pool.answerable),
    }


def _at(settings: Any, path: str) -> Any:
    for name in path.split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings
