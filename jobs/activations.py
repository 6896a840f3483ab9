"""`sentinel activations`: the hidden states that probes read, by one pass per episode.

Per cell (benchmark × agent): what is wrong is found first; then a layer is chosen per mode of the
cascade, by a sweep over all layers on a share of the tasks; then the chosen layers of every episode
become the table `activations`. A cell that cannot be done is named and left out, the others finish.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.activation_stages import (
    LAYERS,
    READ,
    SWEEP,
    CellItem,
    LayerItem,
    Model,
    PassItem,
    PassPart,
    check_cell,
    measure_layer,
    part_name,
    run_passes,
)
from cluster.head_stages import Where
from cluster.pool import ItemError
from cluster.progress import Progress
from jobs.label import primary_label, require_label
from sentinel.errors import UserError
from sentinel.tables import ACTIVATIONS, LAYER_SWEEP, OUTCOME_ENDS, TURNS

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from sentinel.probes.layer_sweep import Sample

log = logging.getLogger(__name__)
VERSION = 1
"""Raised whenever a change of the code would change what finished parts hold."""
PART_EPISODES, PART_BYTES = 128, 64 * 2**20
"""A part holds at most so many episodes and bytes of vectors."""
GPU_PARTS = 8
"""Parts per task on a GPU, where loading the model takes longest."""


@dataclass(frozen=True)
class Cell:
    """One agent on one benchmark; `layers` are candidates, `width` and `base` (hash of what every
    vector depends on) are known once it is checked, `samples` once they are drawn."""

    where: Where
    model: Model
    rounds: int
    layers: tuple[int, ...] | None
    width: int = 0
    base: str = ""
    samples: tuple[Sample, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """(benchmark, agent)."""
        return self.where.benchmark, self.where.agent

    @property
    def candidates(self) -> tuple[int, ...]:
        """Layers that the sweep compares, or the one layer that was named."""
        return tuple(sorted(self.layers or ()))

    def sampled(self) -> list[str]:
        """Episodes of the sweep, of any mode, sorted."""
        return sorted({e for s in self.samples for e in s.episode})


class Refused(dict[Where, str]):
    """Cells that stopped, with the cause; each is logged and counted once."""

    def add(self, run_dir: RunDir, where: Where, error: object) -> None:
        """Stop a cell."""
        if where not in self:
            self[where] = str(error)
            log.error("activations of %s/%s: %s", where.benchmark, where.agent, error)
            _metric(run_dir, where, event="refused", cause=str(error))


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Extract what is missing; agents that are not labelled are left out (`status` names them).

    A cell that cannot be done is logged with its cause and stays missing; the others finish.
    """
    refused = Refused()
    cells = _checked(config, run_dir, cluster, refused)
    cells = list(_each(run_dir, cells, refused, lambda c: _drawn(config, run_dir, c)))
    swept = [c for c in cells if c.samples]
    _extract(run_dir, cluster, refused, SWEEP, [(c, c.candidates, c.sampled()) for c in swept])
    _measure(run_dir, cluster, refused, [c for c in swept if c.where not in refused])
    left = [c for c in cells if c.where not in refused]
    chosen = dict(_each(run_dir, left, refused, lambda c: (c.where, _choose(config, run_dir, c))))
    todo = [(c, chosen[c.where], _episodes(run_dir, c)) for c in left if c.where in chosen]
    _extract(run_dir, cluster, refused, ACTIVATIONS, todo)
    for cell, layers, _ in todo:
        if cell.where not in refused:
            run_dir.compact(ACTIVATIONS, *cell.place, [ACTIVATIONS], in_order=True)
            _metric(run_dir, cell.where, event="layers", layers=list(layers))


def _each(
    run_dir: RunDir, cells: Iterable[Cell], refused: Refused, step: Callable[[Cell], Any]
) -> Iterator[Any]:
    """A step of the driver on every cell; an error that a user can mend stops only its cell."""
    for cell in cells:
        try:
            yield step(cell)
        except UserError as error:
            refused.add(run_dir, cell.where, error)


# What is there, and what is wrong with it


def _checked(config: RunConfig, run_dir: RunDir, cluster: Cluster, refused: Refused) -> list[Cell]:
    """The cells that can be done, with their models' shapes."""
    cells = {}
    for benchmark in config.benchmarks:
        for agent in config.agents:
            where = Where(str(run_dir.root), benchmark.name, agent.name)
            if not run_dir.table_path("labels", benchmark.name, agent.name).exists():
                continue
            try:
                cells[where] = _cell(config, run_dir, where, agent, cluster.gpus)
            except UserError as error:
                refused.add(run_dir, where, error)
    items = [CellItem(c.where, c.model, c.layers, c.rounds) for c in cells.values()]
    found = []
    for item, shape in cluster.map("check", check_cell, items):
        if isinstance(shape, ItemError):
            if shape.kind != "user":
                shape.reraise()
            refused.add(run_dir, item.where, shape)
            continue
        cell = cells[item.where]
        layers = cell.layers or tuple(range(1, shape["layers"] + 1))
        found.append(replace(cell, layers=layers, width=shape["width"]))
    return sorted(found, key=lambda c: c.place)


def _cell(config: RunConfig, run_dir: RunDir, where: Where, agent: Any, gpus: int) -> Cell:
    from cluster.engines import agent_hash

    settings = config.activations
    mapping = agent.model_dump(exclude_none=True)
    device = settings.device if settings.device != "auto" else agent.device
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    dtype = agent.dtype if settings.dtype == "agent" else settings.dtype
    identity = agent_hash(mapping)
    model = Model(mapping, identity, dtype, device, settings.tokens_per_batch)
    rounds = settings.rounds or config.cascade.gates
    unread = [c for c in TURNS.columns if c not in (*READ, "benchmark", "agent")]
    turns = run_dir.table_hash("turns", where.benchmark, where.agent, without=unread)
    base = files.digest([VERSION, identity, dtype, rounds, turns])
    layers = None if settings.layers == "sweep" else tuple(settings.layers)
    return Cell(where, model, rounds, layers, base=base)


# The sweep


def _drawn(config: RunConfig, run_dir: RunDir, cell: Cell) -> Cell:
    """The cell with its samples; none where one layer is named."""
    from sentinel.probes.cell import outcome
    from sentinel.probes.layer_sweep import draw

    if len(cell.candidates) == 1:
        return cell
    label = primary_label(config, run_dir, cell.place[0])
    require_label(run_dir, *cell.place, label)
    tasks = {row["task_id"]: row for row in run_dir.read("tasks", cell.place[0]).to_pylist()}
    correct = {
        row["episode_id"]: row["correct"]
        for row in run_dir.read("labels", *cell.place).to_pylist()
        if row["label"] == label
    }
    wanted = ["episode_id", "task_id", "group", "end", "turns"]
    episodes = [
        row
        for row in run_dir.read("episodes", *cell.place).select(wanted).to_pylist()
        if row["end"] in OUTCOME_ENDS and row["turns"]
    ]
    if not episodes:
        raise UserError("no episode has an outcome", "collect more episodes")
    cascade = config.cascade
    columns = (
        [e["episode_id"] for e in episodes],
        [e["group" if cascade.unit == "group" else "task_id"] for e in episodes],
        [
            outcome(e["end"], tasks[e["task_id"]]["answerable"], correct.get(e["episode_id"]))
            for e in episodes
        ],
    )
    share, seed = config.activations.sweep_share, cascade.seed
    samples = tuple(draw(mode, *columns, share, seed, noun=cascade.unit) for mode in cascade.modes)
    for sample in samples:
        _metric(run_dir, cell.where, event="sample", mode=sample.mode, **sample.facts)
    return replace(cell, samples=samples)


def _measure(run_dir: RunDir, cluster: Cluster, refused: Refused, cells: list[Cell]) -> None:
    """One task per layer: all rounds and modes."""
    missing, total = [], 0
    for cell in cells:
        digest = _measured_hash(cell)
        items = [
            LayerItem(cell.where, k, cell.rounds, digest, cell.samples) for k in cell.candidates
        ]
        total += len(items)
        try:
            missing += [
                i
                for i in items
                if not run_dir.is_done(LAYERS, *cell.place, part_name(i.layer), digest)
            ]
        except UserError as error:
            refused.add(run_dir, cell.where, error)
    done = total - len(missing)
    with Progress(LAYERS, total, done=done, unit="layers", run_dir=run_dir) as progress:
        for item, result in cluster.map(LAYERS, measure_layer, missing, progress=progress):
            if isinstance(result, ItemError):
                refused.add(run_dir, item.where, result)


def _choose(config: RunConfig, run_dir: RunDir, cell: Cell) -> tuple[int, ...]:
    """Write `layer_sweep` with the layer of each mode; returns the layers to extract."""
    from sentinel.probes.layer_sweep import LayerAuc, choose

    rows: list[dict[str, Any]] = []
    if cell.samples:
        for layer in cell.candidates:
            marker = part_name(layer)
            found = run_dir.read_parts(LAYERS, *cell.place, LAYER_SWEEP.name)
            rows += [r for item, t in found if item == marker for r in t.to_pylist()]
    else:
        (layer,) = cell.candidates
        where = dict(zip(("benchmark", "agent"), cell.place, strict=True))
        nothing = {"auc": None, "episodes": 0, "failures": 0}
        rows = [
            {**where, "mode": mode, "layer": layer, "round": r, **nothing}
            for mode in config.cascade.modes
            for r in range(1, cell.rounds + 1)
        ]
    chosen: dict[str, int | None] = {}
    for mode in config.cascade.modes:
        names = ("layer", "round", "auc", "episodes", "failures")
        mine = [LayerAuc(*(r[n] for n in names)) for r in rows if r["mode"] == mode]
        chosen[mode] = choose(mine) if cell.samples else cell.candidates[0]
        if chosen[mode] is None:
            raise UserError(
                f"no layer has an AUROC at any round in {mode} mode",
                "raise activations.sweep_share, or name the layer: activations.layers=[K]",
            )
    rows = [{**r, "chosen": chosen[r["mode"]] == r["layer"]} for r in rows]
    source = files.digest([cell.base, _measured_hash(cell), sorted(chosen.items())])
    if not run_dir.has_table(LAYER_SWEEP.name, *cell.place, source):
        table = LAYER_SWEEP.from_rows(rows)
        run_dir.write_table(LAYER_SWEEP.name, *cell.place, table, stage=ACTIVATIONS, source=source)
    return tuple(sorted({k for k in chosen.values() if k is not None}))


def _swept_hash(cell: Cell) -> str:
    return files.digest([cell.base, list(cell.candidates), cell.sampled()])


def _measured_hash(cell: Cell) -> str:
    samples = [[s.mode, s.episode, s.success, s.facts] for s in cell.samples]
    return files.digest([_swept_hash(cell), samples])


# Passes


def _episodes(run_dir: RunDir, cell: Cell) -> list[str]:
    episodes = run_dir.read("episodes", *cell.place).select(["episode_id", "turns"]).to_pylist()
    return sorted(e["episode_id"] for e in episodes if e["turns"])


def _extract(
    run_dir: RunDir,
    cluster: Cluster,
    refused: Refused,
    stage: str,
    work: list[tuple[Cell, tuple[int, ...], list[str]]],
) -> None:
    """Make the missing parts of some cells: (cell, layers, episodes)."""
    items: list[PassItem] = []
    for cell, layers, episodes in work:
        try:
            items += _items(run_dir, stage, cell, layers, episodes)
        except UserError as error:
            refused.add(run_dir, cell.where, error)
    sums: dict[Where, Counter[str]] = {}

    def going(some: Iterable[PassItem]) -> Iterator[PassItem]:
        return (item for item in some if item.where not in refused)

    items.sort(key=lambda i: i.model.device)  # stable: cells stay together
    with Progress(stage, len(items), unit="parts", run_dir=run_dir) as progress:
        for device, group in groupby(items, key=lambda i: i.model.device):
            gpus = 0 if device == "cpu" else 1
            if gpus > cluster.gpus:
                raise UserError(
                    f"activations want a GPU, the cluster has {cluster.gpus}",
                    "set activations.device=cpu, or run on a machine with GPUs",
                )
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
        _metric(run_dir, where, event="extracted", part=stage, **total)


def _items(
    run_dir: RunDir, stage: str, cell: Cell, layers: tuple[int, ...], episodes: list[str]
) -> list[PassItem]:
    """Missing parts, a few per task on a GPU and one elsewhere.

    Raises UserError where finished parts were made from other inputs.
    """
    reuse = frozenset(cell.sampled()) if stage == ACTIVATIONS else frozenset()
    digest = _swept_hash(cell) if stage == SWEEP else files.digest([cell.base, list(layers)])
    bytes_each = cell.rounds * len(layers) * cell.width * 2
    size = max(1, min(PART_EPISODES, PART_BYTES // bytes_each))
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


def _metric(run_dir: RunDir, where: Where, **values: Any) -> None:
    run_dir.metric(ACTIVATIONS, benchmark=where.benchmark, agent=where.agent, **values)
