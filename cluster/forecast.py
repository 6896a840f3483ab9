"""What a run will need, from a pilot of the agents and the measured rates of an earlier run.

Nothing here is measured: it scales. `Pilot` figures are per episode; `rates` are CPU seconds per
unit of a stage, learned from a finished run (`sentinel plan --learn RUN_DIR`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from cluster.pilot import Mean, Pilot

Z = 1.959963984540054
"""Standard errors on each side of a 95 % interval."""
HEADROOM = 1.25
"""Memory asked of Slurm over memory seen: allocations are rounded, batches vary."""
DRIVER_MB = 400
"""The process that hands out the work, without its workers."""


@dataclass(frozen=True, slots=True)
class AgentSize:
    """One agent on one benchmark: how much of it the run wants, and what its pilot said."""

    benchmark: str
    agent: str
    episodes: int
    gpus: int
    """Devices of each replica."""
    pilot: Pilot
    replicas: int | None = None
    """How many it runs at most, where that is fewer than the run's workers: an API's agent is one
    process, a machine's memory holds so many."""

    def total(self, per_episode: Mean) -> dict[str, float | None]:
        """`mean`, `low` and `high` (95 %) of a sum over all episodes; no interval from one."""
        mean = per_episode.mean * self.episodes
        if per_episode.error is None:
            return {"mean": mean, "low": None, "high": None}
        half = Z * per_episode.error * self.episodes
        return {"mean": mean, "low": max(mean - half, 0.0), "high": mean + half}

    @property
    def replica_hours(self) -> float:
        """Hours of one replica, loading once."""
        per_episode = self.pilot.seconds / (self.pilot.episodes + self.pilot.failed)
        return (self.pilot.load_seconds + self.episodes * per_episode) / 3600


@dataclass(frozen=True, slots=True)
class RunSize:
    """What the stages after collection grow with."""

    agents: int
    episodes: int
    turns: float
    tokens: float
    fits: int
    """Head fits per agent: heads × (folds + 1)."""
    epochs: int
    resamples: int
    searches: int
    """Budget searches of the cascade: agents × scorers × splits."""
    encoder: str = ""
    """The heads' encoder."""
    refits: str = ""
    """What the audit fits again."""


@dataclass(frozen=True, slots=True)
class StageForecast:
    """One stage: wall hours on the planned CPUs and GPUs, and what to ask for.

    `memory_mb` is None where nothing was measured. `basis` says where the figures come from.
    """

    stage: str
    hours: float | None
    cpus: int
    gpus: int
    memory_mb: int | None
    basis: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


UNITS: Mapping[str, tuple[str, Callable[[RunSize], float]]] = {
    "label": ("episode", lambda s: s.episodes),
    "activations": ("token", lambda s: s.tokens),
    "heads": ("turn × fit × epoch", lambda s: s.turns * s.fits * s.epochs),
    "audit": ("episode", lambda s: s.episodes),
    "probes": ("turn", lambda s: s.turns),
    "calibrate": ("episode", lambda s: s.episodes),
    "search": ("search", lambda s: s.searches),
    "bootstrap": ("agent × resample", lambda s: s.agents * s.resamples),
    "report": ("agent", lambda s: s.agents),
}
"""Stage → its unit, and how many units a run has."""
PARALLEL = frozenset({"collect", "label", "activations", "heads", "audit", "bootstrap", "search"})
"""Stages that use every CPU they are given."""
RATE_OF: Mapping[str, str] = {"heads": "encoder", "audit": "refits"}
"""Stage → what its rate holds for alone, a field of `RunSize`."""


def known_rates() -> dict[str, Any]:
    """The rates that ship: `from` (which run, where) and `stages`."""
    found: dict[str, Any] = json.loads((files(__package__) / "rates.json").read_text())
    return found


def learn(
    size: RunSize, seconds: Mapping[str, float], memory_mb: Mapping[str, float], cpus: int
) -> dict[str, Any]:
    """Rates of a finished run from the wall seconds and peak memory of its stages."""
    out: dict[str, Any] = {}
    for stage, (unit, count) in UNITS.items():
        if stage in seconds and count(size) > 0:
            used = cpus if stage in PARALLEL else 1
            out[stage] = {
                "unit": unit,
                "cpu_seconds": round(seconds[stage] * used / count(size), 9),
                "memory_mb": memory_mb.get(stage) and round(memory_mb[stage]),
            }
            if stage in RATE_OF:
                out[stage][RATE_OF[stage]] = getattr(size, RATE_OF[stage])
    return out


def collection(sizes: Sequence[AgentSize], workers: int, cpus: int) -> StageForecast:
    """The collect stage: agents one after the other, `workers` replicas each at most."""
    replicas = [min(workers, s.replicas or workers) for s in sizes]
    hours = sum(s.replica_hours / n for s, n in zip(sizes, replicas, strict=True))
    memory = max(s.pilot.peak_mb * n for s, n in zip(sizes, replicas, strict=True)) + DRIVER_MB
    gpus = max(s.gpus * n for s, n in zip(sizes, replicas, strict=True))
    episodes = sum(s.pilot.episodes for s in sizes)
    return StageForecast(
        "collect", hours, cpus, gpus, asked(memory), f"pilot of {episodes} episodes"
    )


def later(
    stage: str, size: RunSize, rates: Mapping[str, Any], cpus: int, gpus: int = 0
) -> StageForecast:
    """A stage after collection; without a rate it is named, never guessed.

    `gpus`: those it works on; rates are of CPUs.
    """
    used = cpus if stage in PARALLEL else 1
    if gpus:
        return StageForecast(stage, None, used, gpus, None, "never measured on a GPU")
    rate = rates["stages"].get(stage)
    if rate is None:
        return StageForecast(stage, None, used, 0, None, "never measured")
    wanted = getattr(size, RATE_OF[stage]) if stage in RATE_OF else None
    if wanted is not None and rate.get(RATE_OF[stage]) != wanted:
        return StageForecast(stage, None, used, 0, None, f"never measured for {wanted}")
    hours = rate["cpu_seconds"] * UNITS[stage][1](size) / used / 3600
    memory = rate["memory_mb"]
    return StageForecast(stage, hours, used, 0, memory and asked(memory), rates["from"])


def asked(mb: float) -> int:
    """Memory to ask for, in MiB: with headroom, in steps of 256."""
    return 256 * math.ceil(mb * HEADROOM / 256)
