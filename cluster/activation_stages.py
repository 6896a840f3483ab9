"""What workers do in the activations stage: check a cell, run passes, measure layers.

A task works through a few parts and commits each as it is done, so that a killed run repeats at
most the part in hand of each worker, while a large model is loaded once for several of them. Only
counts travel back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.activation_tables import by_round, rows
from cluster.head_stages import Where
from sentinel.activations.positions import Pass, passes
from sentinel.errors import UserError
from sentinel.tables import ACTIVATIONS, EPISODES, LAYER_SWEEP, TURNS

if TYPE_CHECKING:
    from sentinel.activations.extract import Backbone
    from sentinel.episodes import Turn
    from sentinel.probes.layer_sweep import Sample

SWEEP, LAYERS = "activations-sweep", "layer-sweep"
READ = ("episode_id", "turn", "prompt_ids", "prompt_is_full", "generated_ids", "finish_reason")
"""Columns of `turns` that hidden states depend on."""
_CHECKED = (*READ, "prompt_tokens", "generated_tokens")
_BATCH = 512


@dataclass(frozen=True)
class Model:
    """A model to run: the agent's config, the hash that its episodes must carry, and how."""

    agent: Mapping[str, Any] = field(hash=False)
    agent_hash: str
    dtype: str = "float32"
    device: str = "cpu"
    tokens_per_batch: int = 16_384


@dataclass(frozen=True)
class CellItem:
    """A cell to check before anything runs; `layers` None asks for all."""

    where: Where
    model: Model
    layers: tuple[int, ...] | None
    rounds: int


@dataclass(frozen=True)
class PassPart:
    """Episodes whose hidden states are one part; `taken` of them are copied from sweep parts."""

    name: str
    episodes: tuple[str, ...]
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PassItem:
    """Parts of one cell that one task makes, in order. `stage` names where they are committed."""

    where: Where
    model: Model
    stage: str
    layers: tuple[int, ...]
    rounds: int
    input_hash: str
    parts: tuple[PassPart, ...]


@dataclass(frozen=True)
class LayerItem:
    """One layer of a cell to measure on the samples of the sweep."""

    where: Where
    layer: int
    rounds: int
    input_hash: str
    samples: tuple[Sample, ...] = field(hash=False)


def check_cell(item: CellItem) -> dict[str, int]:
    """Find what can be known to be wrong with a cell before a model is loaded.

    Returns `layers`, `width` and `window` of the model and the number of `rows` to come. Raises
    UserError for an agent whose weights or settings are not those that made the episodes, for one
    without token ids, for a layer that does not exist, and for an episode longer than the window.
    """
    from cluster.engines.folders import model_folder
    from sentinel.activations.extract import check_layers, read_shape, too_long
    from sentinel.episodes import Turn

    where, agent = item.where, item.model.agent
    made_by = set(_column(where, EPISODES.name, "agent_hash"))
    if made_by != {item.model.agent_hash}:
        raise UserError(
            f"the weights or settings of agent {where.agent} are not those that made its episodes "
            f"of {where.benchmark}",
            "give back the agent as it was, or collect its episodes anew under another run name",
        )
    # Ids before the model: what an API served has neither, and its name is no folder.
    longest, at, count = 0, "", 0
    for batch in _batches(where, TURNS.name, _CHECKED):
        batch = batch.filter(pc.less_equal(batch["turn"], item.rounds))
        bare = pc.or_(pc.is_null(batch["prompt_ids"]), pc.is_null(batch["generated_ids"]))
        for row in batch.filter(bare).slice(0, 1).select(list(READ)).to_pylist():
            passes(row["episode_id"], [Turn(where.benchmark, where.agent, **row)])
        length = pc.add(batch["prompt_tokens"], batch["generated_tokens"]).to_numpy()
        count += len(length)
        if len(length) and length.max() > longest:
            longest, at = int(length.max()), batch["episode_id"][int(length.argmax())].as_py()
    shape = read_shape(model_folder(agent))
    check_layers(item.layers or (1,), shape)
    window = min(shape.window, int(agent.get("context_window") or shape.window))
    if longest > window:
        raise too_long(at, longest, window)
    return {"layers": shape.layers, "width": shape.width, "window": window, "rows": count}


def run_passes(item: PassItem) -> dict[str, Any]:
    """Make and commit the parts of an item; returns what was run, in numbers.

    Raises UserError where the model cannot be loaded or an episode cannot be run.
    """
    total: dict[str, Any] = dict.fromkeys(
        ("parts", "rows", "tokens", "undefined", "clipped", "padded", "passes"), 0
    )
    start = time.perf_counter()
    for part in item.parts:
        _run_part(item, part, total)
        total["parts"] += 1
    total["seconds"] = round(time.perf_counter() - start, 3)
    return total


def measure_layer(item: LayerItem) -> int:
    """Measure one layer in every mode and commit the rows of `layer_sweep`; returns the layer."""
    from sentinel.probes.layer_sweep import measure

    where = item.where
    run_dir, place = where.run_dir, (where.benchmark, where.agent)
    parts = run_dir.read_parts(SWEEP, *place, part_name(item.layer))
    found = by_round((table for _, table in parts), item.layer)
    table = LAYER_SWEEP.from_rows(
        [
            {
                "benchmark": where.benchmark,
                "agent": where.agent,
                "mode": sample.mode,
                "layer": one.layer,
                "round": one.round,
                "auc": one.auc,
                "episodes": one.episodes,
                "failures": one.failures,
                "chosen": None,
            }
            for sample in item.samples
            for one in measure(sample, item.layer, found, item.rounds)
        ]
    )
    name = part_name(item.layer)
    run_dir.commit(LAYERS, *place, name, {LAYER_SWEEP.name: table}, item.input_hash)
    return item.layer


def part_name(layer: int) -> str:
    """Name of one layer's table in a part of the sweep, and of its item when it is measured."""
    return f"layer-{layer:03d}"


def _run_part(item: PassItem, part: PassPart, total: dict[str, Any]) -> None:
    from sentinel.activations.extract import extract

    where = item.where
    new = set(part.episodes) - part.taken
    turns: dict[str, list[Turn]] = {e: [] for e in sorted(new)}
    for turn in _turns(where, new, item.rounds):
        turns[turn.episode_id].append(turn)
    todo: list[Pass] = [p for e, some in turns.items() for p in passes(e, some, item.rounds)]
    # Nothing to run needs no model, but its width all the same.
    got = extract(_backbone(item.model), todo, item.layers, item.model.tokens_per_batch)
    total["rows"] += len(got.vectors)
    total["tokens"] += got.tokens
    total["padded"] += round(got.tokens / (1 - got.padding)) - got.tokens
    total["clipped"] += got.clipped
    total["undefined"] += int((~got.defined).sum())
    total["passes"] += len(todo)
    names = where.benchmark, where.agent
    made = {
        layer: rows(*names, todo, layer, got.vectors[:, k], got.defined[:, k])
        for k, layer in enumerate(item.layers)
    }
    if item.stage == SWEEP:
        written = {part_name(layer): table for layer, table in made.items()}
    else:
        copied = [t for layer in item.layers for t in _taken(where, part.taken, layer)]
        written = {ACTIVATIONS: pa.concat_tables([*made.values(), *copied])}
    where.run_dir.commit(item.stage, *names, part.name, written, item.input_hash)


def _taken(where: Where, episodes: frozenset[str], layer: int) -> Iterator[pa.Table]:
    """Rows that the sweep has made already."""
    if not episodes:
        return
    wanted = pa.array(sorted(episodes), pa.string())
    place = where.benchmark, where.agent
    for _, table in where.run_dir.read_parts(SWEEP, *place, part_name(layer)):
        yield table.filter(pc.is_in(table["episode_id"], wanted))


_LOADED: dict[tuple[str, str, str], Any] = {}
"""The model that this process ran last: the next task most often wants the same one."""


def _backbone(model: Model) -> Backbone:
    from cluster.engines.folders import model_folder
    from sentinel.activations.extract import load_backbone

    key = (model.agent_hash, model.dtype, model.device)
    if key not in _LOADED:
        _LOADED.clear()
        found = load_backbone(model_folder(model.agent), model.dtype, model.device)
        window = int(model.agent.get("context_window") or found.shape.window)
        shape = replace(found.shape, window=min(window, found.shape.window))
        _LOADED[key] = replace(found, shape=shape)
    return _LOADED[key]


def _turns(where: Where, wanted: set[str] | None, rounds: int) -> Iterator[Turn]:
    """Turns 1…rounds of the wanted episodes, with their ids and nothing that is not read."""
    from sentinel.episodes import Turn

    keep = None if wanted is None else pa.array(sorted(wanted), pa.string())
    for batch in _batches(where, TURNS.name, READ):
        mask = pc.less_equal(batch["turn"], rounds)
        if keep is not None:
            mask = pc.and_(mask, pc.is_in(batch["episode_id"], keep))
        for row in batch.filter(mask).to_pylist():
            yield Turn(where.benchmark, where.agent, **row)


def _column(where: Where, name: str, column: str) -> list[Any]:
    return [v for batch in _batches(where, name, (column,)) for v in batch[column].to_pylist()]


def _batches(where: Where, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    path = where.run_dir.table_path(name, where.benchmark, where.agent)
    with path.open("rb") as file:
        yield from pq.ParquetFile(file).iter_batches(batch_size=_BATCH, columns=list(columns))
