"""Resampled AUROCs in blocks: agent × statistic × block of resamples, the same bits in any cut.

An AUROC costs groups² per resample, every other statistic of the evaluation one matrix product for
all. Concordance counts and weights are integers, so that their float64 sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentinel import tables
from sentinel.bootstrap import Concordance, Interval, cluster_weights, concordance
from sentinel.decide import curves
from sentinel.decide.config import DecideConfig
from sentinel.decide.ladder import Clusters, Statistic
from sentinel.decide.policy import Policy
from sentinel.decide.table import Bools, Floats, Ints, from_table

BLOCK = 2000
"""Resamples per block."""
MANY = 5e9
"""Resamples × groups² of one statistic (some seconds) from which blocks are worth Tune's start."""


@dataclass(frozen=True)
class Counts:
    """One agent's AUROC statistics on the held-out pool, as concordance counts over G groups."""

    benchmark: str
    agent: str
    seed: int
    groups: int
    statistics: Mapping[Statistic, Concordance]


@dataclass(frozen=True, slots=True)
class DrawBlock:
    """Resamples `start` … `stop` − 1 of a statistic of the agent at `index`."""

    index: int
    statistic: Statistic
    start: int
    stop: int

    @property
    def name(self) -> str:
        """`auroc_correctness head t=3 resamples-0-1999`, both ends included."""
        return f"{' '.join(self.statistic)} resamples-{self.start}-{self.stop - 1}"


@dataclass(frozen=True)
class _Counter(Clusters):
    """Collects the counts of every AUROC that an evaluation asks for."""

    found: dict[Statistic, Concordance] = field(default_factory=dict)

    def auroc(self, name: Statistic, scores: Floats, positive: Bools, index: Ints) -> Interval:
        seen = ~np.isnan(scores)
        counts = concordance(scores[seen], positive[seen], index[seen], len(self.names))
        if counts.auroc is not None:
            self.found[name] = counts
        return Interval(None)


def count(benchmark: str, policy: Policy, table: pa.Table, config: DecideConfig) -> Counts:
    """The AUROC statistics of `decide.evaluate` on the held-out pool, defined ones only."""
    pool = from_table(table).in_pool("heldout")
    counter = _Counter(**vars(Clusters.of(pool, 0, config.seed)))
    curves.auroc_rows(policy, pool, counter)
    curves.withhold(policy, pool, counter)
    return Counts(benchmark, policy.agent, config.seed, len(counter.names), counter.found)


def many(table: pa.Table, config: DecideConfig) -> bool:
    """Are the resamples so many, for this pool's groups, that blocks are worth it?"""
    held_out = table.filter(pc.equal(table.column("pool"), "heldout"))
    groups = pc.count_distinct(held_out.column("group")).as_py()
    return bool(config.resamples * groups**2 >= MANY)


def blocks(counted: Sequence[Counts], resamples: int) -> Iterator[DrawBlock]:
    """All blocks of all agents."""
    for i, counts in enumerate(counted):
        for statistic in counts.statistics:
            for start in range(0, resamples, BLOCK):
                yield DrawBlock(i, statistic, start, min(start + BLOCK, resamples))


def block(counted: Sequence[Counts], part: DrawBlock) -> Mapping[str, pa.Table]:
    """One block, as the table `bootstrap_draws`."""
    counts = counted[part.index]
    found = counts.statistics[part.statistic]
    size = part.stop - part.start
    weights = cluster_weights(counts.groups, size, counts.seed, part.start)
    undefined = (weights @ found.positives) * (weights @ found.negatives) <= 0
    values = np.zeros(size)
    values[~undefined] = found.resampled(weights)
    fixed = {
        "benchmark": counts.benchmark,
        "agent": counts.agent,
        **dict(zip(("statistic", "system", "stratum"), part.statistic, strict=True)),
    }
    table = pa.table(
        {
            **{name: [value] * size for name, value in fixed.items()},
            "resample": np.arange(part.start, part.stop),
            "value": pa.array(values, mask=undefined),
        }
    )
    return {"bootstrap_draws": tables.BOOTSTRAP_DRAWS.check(table)}


def gather(found: Iterable[pa.Table]) -> dict[Statistic, Floats]:
    """Draws by statistic from blocks in any order, resamples ascending, undefined ones left out."""
    parts: dict[Statistic, list[tuple[int, Floats]]] = {}
    for table in found:
        first = table.slice(0, 1).to_pylist()[0]
        name = (first["statistic"], first["system"], first["stratum"])
        values = np.asarray(table.column("value").drop_null().to_numpy(), dtype=np.float64)
        parts.setdefault(name, []).append((first["resample"], values))
    return {
        name: np.concatenate([values for _, values in sorted(blocks_, key=lambda b: b[0])])
        for name, blocks_ in parts.items()
    }
