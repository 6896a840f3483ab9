"""What workers do in the probes stage: lay out the rounds of an agent, score them, measure AUROCs.

Every function takes one small item and reads its inputs from the run directory; the driver commits
what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from cluster.activation_tables import read_vectors
from cluster.head_stages import Where, read_episodes, read_tasks

if TYPE_CHECKING:
    from sentinel.probes import Cell

PROBES = "probes"
ROUNDS = "rounds"
"""The part that holds an agent's rounds, before any scorer."""


@dataclass(frozen=True)
class RoundsItem:
    """The rounds of one agent; `cascade` is the section of the config, `label` the primary one."""

    where: Where
    settings: Mapping[str, Any] = field(hash=False)
    cascade: Mapping[str, Any] = field(hash=False)
    label: str
    drop_stopped: bool = False


@dataclass(frozen=True)
class ScorerItem:
    """One scorer in one mode on one agent; `layer` where it reads hidden states."""

    where: Where
    mode: str
    scorer: str
    cascade: Mapping[str, Any] = field(hash=False)
    heads: Mapping[str, Any] = field(hash=False)
    layer: int | None = None
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The part's name, such as `paper-probe`."""
        return f"{self.mode}-{self.scorer}"


def rounds_part(item: RoundsItem) -> dict[str, Any]:
    """Rounds 1…G of every episode with an outcome: costs, surface features, texts; as `tables`."""
    from sentinel.benchmarks.registry import load
    from sentinel.probes import cell_of
    from sentinel.probes.cell import Prices
    from sentinel.probes.rows import to_table

    where, cascade = item.where, item.cascade
    labels = where.run_dir.read("labels", where.benchmark, where.agent)
    labels = labels.filter(pc.equal(labels["label"], item.label))
    verdict = zip(labels["episode_id"].to_pylist(), labels["correct"].to_pylist(), strict=True)
    cell = cell_of(
        read_episodes(where, None, telemetry=False, keep=("logprobs",)),
        read_tasks(where),
        dict(verdict),
        benchmark=where.benchmark,
        agent=where.agent,
        gates=cascade["gates"],
        words=cascade["error_words"],
        prices=Prices(cascade["prompt_price"], cascade["generated_price"], cascade["cost_unit"]),
        dialect=load(dict(item.settings)).dialect,
        drop_stopped=item.drop_stopped,
    )
    return {"tables": {ROUNDS: to_table(cell)}}


def scorer_part(item: ScorerItem) -> dict[str, Any]:
    """Scores of one scorer: `tables` (round_scores of the mode); its files go to `folder`.

    Raises UserError where no folds can be drawn, or hidden states are missing.
    """
    from sentinel.probes import ScorerConfig, score, split, table
    from sentinel.probes.export import save

    cell = read_cell(item.where)
    cascade = item.cascade
    if item.layer is not None:
        cell = cell.with_vectors(read_vectors(item.where, item.layer), item.layer)
    unit = cascade["unit"]
    cut = split(item.mode, list(cell.episode), cell.unit(unit), cell.success, cascade["seed"], unit)
    folder = probe_folder(item.where, item.mode)
    config = ScorerConfig(
        seed=cascade["seed"],
        after_feedback=cascade["after_feedback"],
        heads=item.heads,
        device=item.device,
        folder=folder / item.scorer if item.scorer == "heads" else None,
    )
    scored = score(cell, cut, item.scorer, config)
    kept = ("gates", "error_words", "after_feedback", "unit")
    facts = save(folder, cell, scored, {k: cascade[k] for k in kept})
    return {"tables": {f"round_scores_{item.mode}": table(cell, scored)}, "facts": facts}


def probe_folder(where: Where, mode: str) -> Path:
    """`probes/BENCHMARK/AGENT/MODE` of the run directory: facts and coefficients per scorer."""
    from cluster import files

    names = (files.safe_name(where.benchmark), files.safe_name(where.agent))
    return where.run_dir.root.joinpath(PROBES, *names, mode)


def read_cell(where: Where) -> Cell:
    """The rounds of an agent, from their part."""
    from sentinel.probes.rows import from_table

    for _, table in where.run_dir.read_parts(PROBES, where.benchmark, where.agent, ROUNDS):
        return from_table(table)
    raise RuntimeError(f"no rounds of {where.benchmark}/{where.agent}")
