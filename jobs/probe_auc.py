"""The cascade's half of stage bootstrap: AUROC of every scorer at every round, with intervals.

Reads `round_scores_MODE`; adds rows to the table `intervals`. Part per mode: adding a scorer makes
a mode anew, adding an agent leaves the others alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster import files
from cluster.pool import ItemError
from jobs.search import places
from sentinel.decide.evaluate import interval_table
from sentinel.probes.auc import AucItem, intervals

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

STAGE = "bootstrap"
PREFIX = "rounds "
Place = tuple[str, str]


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Measure every agent and mode that has scores; finished parts are kept."""
    missing: dict[AucItem, tuple[str, str]] = {}
    done: set[Place] = set()
    for mode in config.cascade.modes if "cascade" in config.methods else ():
        for place in places(config, run_dir, mode):
            name, digest = _name(config, run_dir, place, mode)
            done.add(place)
            if not run_dir.is_done(STAGE, *place, name, digest):
                missing[_item(config, run_dir, place, mode)] = (name, digest)
    for found, result in cluster.map("round AUROCs", intervals, missing):
        if isinstance(result, ItemError):
            result.reraise()
            continue
        place = found.benchmark, found.agent
        name, digest = missing[found]
        part = interval_table(*place, result)
        run_dir.commit(STAGE, *place, name, {"intervals": part}, digest)
    for place in sorted(done):
        compact(config, run_dir, *place)


def compact(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> None:
    """`intervals` of an agent from the parts of both methods; rounds measured under other settings
    stay out."""
    import pyarrow as pa

    place = benchmark, agent
    modes = config.cascade.modes if "cascade" in config.methods else ()
    wanted = {
        _name(config, run_dir, place, mode)[0]
        for mode in modes
        if place in places(config, run_dir, mode)
    }
    kept = {
        item: table
        for item, table in run_dir.read_parts(STAGE, *place, "intervals")
        if not item.startswith(PREFIX) or item in wanted
    }
    if not kept:
        return
    source = files.digest({item: table.to_pylist() for item, table in kept.items()})
    if not run_dir.has_table("intervals", *place, source):
        whole = pa.concat_tables(list(kept.values()))
        run_dir.write_table("intervals", *place, whole, stage=STAGE, source=source)


def _item(config: RunConfig, run_dir: RunDir, place: Place, mode: str) -> AucItem:
    cascade, match = config.cascade, config.cascade.match
    of_task = None
    if match is not None:
        rows = run_dir.read("tasks", place[0]).to_pylist()
        known = {row["task_id"]: json.loads(row["meta"]).get(match) for row in rows}
        of_task = {t: float(v) for t, v in known.items() if isinstance(v, int | float)} or None
    return AucItem(
        *place,
        mode,
        run_dir.read(f"round_scores_{mode}", *place),
        cascade.gates,
        cascade.after_feedback,
        of_task,
        cascade.deploy,
        config.bootstrap.resamples,
        config.bootstrap.seed,
    )


def _name(config: RunConfig, run_dir: RunDir, place: Place, mode: str) -> tuple[str, str]:
    """The part's name, and the hash of what it holds. Other settings are other parts."""
    cascade, bootstrap = config.cascade, config.bootstrap
    settings = [
        sorted(cascade.scorers_of(mode)),
        *(cascade.gates, cascade.after_feedback, cascade.match, cascade.deploy),
        *(bootstrap.resamples, bootstrap.seed),
    ]
    tasks = run_dir.table_hash("tasks", place[0], None, without=("pool", "fold"))
    scores = run_dir.table_hash(f"round_scores_{mode}", *place)
    name = f"{PREFIX}{mode} {files.digest(settings)[:8]}"
    return name, files.digest([settings, scores, tasks])
