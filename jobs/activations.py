"""`sentinel activations`: the hidden states that probes read, by one pass per episode.

Per cell (benchmark × agent): what is wrong is found first; then a layer is chosen per mode of the
cascade, by a sweep over all layers on a share of the tasks; then the chosen layers of every episode
become the table `activations`. A cell that cannot be done is named and left out, the others finish.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from cluster import files
from cluster.activation_stages import SWEEP, PassItem, PassPart, run_passes
from cluster.head_stages import Where
from cluster.pool import ItemError
from cluster.progress import Progress
from jobs.activation_cells import Cell, Refused, checked, each, metric
from jobs.activation_sweep import choose_layers, drawn, measure, swept_hash
from sentinel.errors import UserError
from sentinel.tables import ACTIVATIONS

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

log = logging.getLogger(__name__)
PART_EPISODES, PART_BYTES = 128, 64 * 2**20
"""A part holds at most so many episodes and bytes of vectors."""
Work = tuple[Cell, tuple[int, ...], list[str]]
"""A cell, the layers and the episodes to extract."""
GPU_PARTS = 8
"""Parts per task on a GPU, where loading the model takes longest."""


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Extract what is missing; agents that are not labelled are left out (`status` names them).

    A cell that cannot be done is logged with its cause and stays missing; the others finish.
    """
    refused = Refused()
    cells = checked(config, run_dir, cluster, refused)
    cells = list(each(run_dir, cells, refused, lambda c: drawn(config, run_dir, c)))
    swept = [c for c in cells if c.samples]
    _extract(run_dir, cluster, refused, SWEEP, [(c, c.candidates, c.sampled()) for c in swept])
    measure(run_dir, cluster, refused, [c for c in swept if c.where not in refused])
    left = [c for c in cells if c.where not in refused]

    def planned(cell: Cell) -> Work:
        return cell, choose_layers(config, run_dir, cell), _episodes(run_dir, cell)

    todo: list[Work] = list(each(run_dir, left, refused, planned))
    _extract(run_dir, cluster, refused, ACTIVATIONS, todo)
    for cell, layers, _ in todo:
        if cell.where not in refused:
            run_dir.compact(ACTIVATIONS, *cell.place, [ACTIVATIONS], in_order=True)
            metric(run_dir, cell.where, event="layers", layers=list(layers))


def _episodes(run_dir: RunDir, cell: Cell) -> list[str]:
    episodes = run_dir.read("episodes", *cell.place).select(["episode_id", "turns"]).to_pylist()
    return sorted(e["episode_id"] for e in episodes if e["turns"])


def _extract(
    run_dir: RunDir,
    cluster: Cluster,
    refused: Refused,
    stage: str,
    work: list[Work],
) -> None:
    """Make the missing parts of some cells."""
    items: list[PassItem] = []
    for cell, layers, episodes in work:
        try:
            items += _items(run_dir, stage, cell, layers, episodes)
        except UserError as error:
            refused.add(run_dir, cell.where, error)
    if not work:
        return
    sums: dict[Where, Counter[str]] = {}

    def going(some: Iterable[PassItem]) -> Iterator[PassItem]:
        return (item for item in some if item.where not in refused)

    items.sort(key=lambda i: i.model.device)  # stable: cells stay together
    with Progress(stage, len(items), unit="parts", run_dir=run_dir) as progress:
        for device, group in groupby(items, key=lambda i: i.model.device):
            gpus = 0 if device == "cpu" else 1
            results = cluster.map(stage, run_passes, going(group), num_gpus=gpus, progress=progress)
            for item, result in results:
                if isinstance(result, ItemError):
                    refused.add(run_dir, item.where, result)
                else:
                    sums.setdefault(item.where, Counter()).update(result)
    for where, total in sums.items():
        if total["clipped"] or total["undefined"]:
            log.warning(
                "activations of %s/%s: %d values beyond float16 are clipped, %d vectors are "
                "undefined (the model gave NaN or infinity)",
                where.benchmark,
                where.agent,
                total["clipped"],
                total["undefined"],
            )
        metric(run_dir, where, event="extracted", part=stage, **total)


def _items(
    run_dir: RunDir, stage: str, cell: Cell, layers: tuple[int, ...], episodes: list[str]
) -> list[PassItem]:
    """Missing parts, a few per task on a GPU and one elsewhere.

    Raises UserError where finished parts were made from other inputs.
    """
    reuse = frozenset(cell.sampled()) if stage == ACTIVATIONS else frozenset()
    bytes_each = cell.rounds * len(layers) * cell.width * 2
    size = max(1, min(PART_EPISODES, PART_BYTES // bytes_each))
    # Only a part's size says which episodes its name stands for.
    inputs = [swept_hash(cell)] if stage == SWEEP else [cell.base, list(layers), episodes]
    digest = files.digest([*inputs, size])
    parts = []
    for number, start in enumerate(range(0, len(episodes), size)):
        name, some = f"part-{number:06d}", tuple(episodes[start : start + size])
        if not run_dir.is_done(stage, *cell.place, name, digest):
            parts.append(PassPart(name, some, reuse.intersection(some)))
    block = GPU_PARTS if cell.model.device != "cpu" else 1
    return [
        PassItem(
            cell.where,
            cell.model,
            stage,
            layers,
            cell.rounds,
            digest,
            tuple(parts[start : start + block]),
        )
        for start in range(0, len(parts), block)
    ]
