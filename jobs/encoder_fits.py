"""Heads with other settings on a run's own train folds, and the control that must find nothing.

A part per head and fold, kept in the run: what was fitted once is not fitted again. The control is
the audit's: the whole training loop of the correctness head on permuted outcomes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.config import RunConfig

if TYPE_CHECKING:
    from cluster.audit_stages import RefitItem
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from sentinel.audit.pool import TrainPool

STAGE = "compare-encoders"
Place = tuple[str, str]
Pools = Mapping[Place, "TrainPool"]


@contextmanager
def opened(config: RunConfig, run_dir: RunDir, on: str) -> Iterator[Cluster]:
    """The run directory's lock, and where the fits run."""
    from jobs.machine import open_site

    with run_dir.lock(), open_site(config.site, on) as cluster:
        yield cluster


def logits(
    config: RunConfig, run_dir: RunDir, pools: Pools, cluster: Cluster
) -> dict[Place, dict[str, Any]]:
    """(benchmark, agent) → head → (E,) out-of-fold logits at T of heads with these settings."""
    import numpy as np

    from sentinel.heads.config import HEADS as NAMES

    items = _items(config, run_dir, pools, cluster, NAMES)
    _fit(items, run_dir, cluster)
    out: dict[Place, dict[str, Any]] = {}
    for place, pool in pools.items():
        found = {head: np.full(len(pool), np.nan) for head in NAMES}
        row = {e: k for k, e in enumerate(pool.episode_id)}
        for item, rows in _read(items, run_dir, place):
            for r in rows:
                if r["logit"] is not None:
                    found[item.head][row[r["episode_id"]]] = r["logit"]
        out[place] = found
    return out


def controls(
    encoders: Mapping[str, RunConfig], run_dir: RunDir, pools: Pools, cluster: Cluster
) -> list[dict[str, Any]]:
    """A row per agent and encoder (name → a config with its heads), fitted on shuffled labels.

    `passed`: the mean of the per-fold AUROCs lies within `low` and `high`, which is chance; None
    where there are too few episodes to say.
    """
    import numpy as np

    from sentinel.audit.refits import Fold, loop_row
    from sentinel.heads.config import CORRECTNESS

    rows = []
    for name, config in encoders.items():
        shuffle = zlib.crc32(f"{config.audit.seed}/{STAGE}".encode())
        items = _items(config, run_dir, pools, cluster, (CORRECTNESS,), shuffle)
        _fit(items, run_dir, cluster)
        for place in pools:
            folds = {}
            for item, found in _read(items, run_dir, place):
                logit = [np.nan if r["logit"] is None else r["logit"] for r in found]
                folds[item.fold] = Fold(
                    np.array([r["episode_id"] for r in found], dtype=object),
                    np.array([r["positive"] for r in found], dtype=bool),
                    np.array(logit, dtype=np.float64),
                )
            if folds:
                where = {"benchmark": place[0], "agent": place[1], "encoder": name}
                rows.append({**where, **loop_row(CORRECTNESS, name, folds)})
    return rows


def _items(
    config: RunConfig,
    run_dir: RunDir,
    pools: Pools,
    cluster: Cluster,
    heads: Sequence[str],
    shuffle: int | None = None,
) -> dict[RefitItem, str]:
    """A fit per agent, head and fold, with the hash of what it depends on."""
    import numpy as np

    from cluster import files
    from cluster.audit_stages import RefitItem
    from cluster.head_stages import HEADS, SNAPSHOTS, Where
    from jobs.heads import head_device, head_settings

    items: dict[RefitItem, str] = {}
    for place, pool in pools.items():
        settings = head_settings(config, place[0])
        device = head_device(settings, cluster)
        marker = run_dir.marker_path(HEADS, *place, SNAPSHOTS)
        inputs = (files.read_json(marker) or {})["tables"][SNAPSHOTS]["sha256"]
        parts = [inputs, {**settings, "device": None}]
        digest = files.digest(parts if shuffle is None else [*parts, shuffle])
        name = f"{'encoder' if shuffle is None else 'shuffled'}-{digest[:12]}"
        where = Where(str(run_dir.root), *place)
        for head in (h for h in heads if pool.eligible(h).any()):
            for fold in np.unique(pool.fold).tolist():
                seed = config.heads.seed
                item = RefitItem(where, name, head, "-", fold, settings, seed, shuffle, device)
                items[item] = digest
    return items


def _fit(items: Mapping[RefitItem, str], run_dir: RunDir, cluster: Cluster) -> None:
    """Fit what is missing; raises the first failure."""
    from cluster.audit_stages import audit_part
    from cluster.pool import ItemError
    from cluster.progress import Progress

    missing = [
        i
        for i, digest in items.items()
        if not run_dir.is_done(STAGE, i.where.benchmark, i.where.agent, i.name, digest)
    ]
    gpus = int(any(i.device == "cuda" for i in items))
    with Progress(STAGE, len(items), done=len(items) - len(missing), unit="fits") as progress:
        results = cluster.map(STAGE, audit_part, missing, num_gpus=gpus, progress=progress)
        for item, result in results:
            if isinstance(result, ItemError):
                result.reraise()
                continue
            place = item.where.benchmark, item.where.agent
            run_dir.commit(STAGE, *place, item.name, result, items[item])


def _read(
    items: Mapping[RefitItem, str], run_dir: RunDir, place: Place
) -> Iterator[tuple[RefitItem, list[dict[str, Any]]]]:
    """The items of an agent with their rows of `audit_logits`."""
    mine = {i.name: i for i in items if (i.where.benchmark, i.where.agent) == place}
    for name, part in run_dir.read_parts(STAGE, *place, "audit_logits"):
        if name in mine:
            yield mine[name], part.to_pylist()
