"""Cells of the activations stage: what each needs, and what is wrong with it before it begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.activation_stages import READ, CellItem, Model, check_cell
from cluster.head_stages import Where
from cluster.pool import ItemError
from sentinel.errors import UserError
from sentinel.tables import ACTIVATIONS, TURNS

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from sentinel.probes.layer_sweep import Sample

log = logging.getLogger(__name__)
VERSION = 1
"""Raised whenever a change of the code would change what finished parts hold."""


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
            metric(run_dir, where, event="refused", cause=str(error))


def each(
    run_dir: RunDir, cells: Iterable[Cell], refused: Refused, step: Callable[[Cell], Any]
) -> Iterator[Any]:
    """A step of the driver on every cell; an error that a user can mend stops only its cell."""
    for cell in cells:
        try:
            yield step(cell)
        except UserError as error:
            refused.add(run_dir, cell.where, error)


def checked(config: RunConfig, run_dir: RunDir, cluster: Cluster, refused: Refused) -> list[Cell]:
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
    if device != "cpu" and not gpus:
        raise UserError(
            f"{device} is wanted and the cluster has no GPU",
            "set activations.device=cpu, or run on a machine with GPUs",
        )
    dtype = agent.dtype if settings.dtype == "agent" else settings.dtype
    identity = agent_hash(mapping)
    model = Model(mapping, identity, dtype, device, settings.tokens_per_batch)
    rounds = settings.rounds or config.cascade.gates
    unread = [c for c in TURNS.columns if c not in (*READ, "benchmark", "agent")]
    turns = run_dir.table_hash("turns", where.benchmark, where.agent, without=unread)
    base = files.digest([VERSION, identity, dtype, rounds, turns])
    layers = None if settings.layers == "sweep" else tuple(settings.layers)
    return Cell(where, model, rounds, layers, base=base)


def metric(run_dir: RunDir, where: Where, **values: Any) -> None:
    """A line of `metrics.jsonl` about a cell."""
    run_dir.metric(ACTIVATIONS, benchmark=where.benchmark, agent=where.agent, **values)
