"""The sweep of the activations stage: draw its share, measure every layer, take one per mode."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.activation_stages import LAYERS, LayerItem, measure_layer, part_name
from cluster.pool import ItemError
from cluster.progress import Progress
from jobs.activation_cells import Cell, Refused, metric
from jobs.label import primary_label, require_label
from sentinel.errors import UserError
from sentinel.tables import ACTIVATIONS, LAYER_SWEEP, OUTCOME_ENDS

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig


def drawn(config: RunConfig, run_dir: RunDir, cell: Cell) -> Cell:
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
        metric(run_dir, cell.where, event="sample", mode=sample.mode, **sample.facts)
    return replace(cell, samples=samples)


def measure(run_dir: RunDir, cluster: Cluster, refused: Refused, cells: list[Cell]) -> None:
    """One task per layer: all rounds and modes."""
    if not cells:
        return
    missing, total = [], 0
    for cell in cells:
        digest = measured_hash(cell)
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


def choose_layers(config: RunConfig, run_dir: RunDir, cell: Cell) -> tuple[int, ...]:
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
    source = files.digest([cell.base, measured_hash(cell), sorted(chosen.items())])
    if not run_dir.has_table(LAYER_SWEEP.name, *cell.place, source):
        table = LAYER_SWEEP.from_rows(rows)
        run_dir.write_table(LAYER_SWEEP.name, *cell.place, table, stage=ACTIVATIONS, source=source)
    return tuple(sorted({k for k in chosen.values() if k is not None}))


def swept_hash(cell: Cell) -> str:
    """What the vectors of the sweep depend on."""
    return files.digest([cell.base, list(cell.candidates), cell.sampled()])


def measured_hash(cell: Cell) -> str:
    """What the AUROCs of the sweep depend on."""
    samples = [[s.mode, s.episode, s.success, s.facts] for s in cell.samples]
    return files.digest([swept_hash(cell), samples])
