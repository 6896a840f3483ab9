"""Where replicas go: how many fit, what each gets, and Ray's options for it.

A replica holds all the devices of its engine itself (`num_gpus` = tensor parallel): vLLM starts its
workers in the replica's process tree, and they see what the replica sees. Nothing hides a device.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sentinel.errors import UserError

log = logging.getLogger(__name__)
RESERVE_SECONDS = 120.0
"""How long replicas with GPUs wait for their places."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a machine of the cluster offers."""

    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Share:
    """Replicas of one team, and what each of them gets."""

    replicas: int
    cpus: int
    gpus: int
    teams: int = 1
    """Teams (agents at the same time) of this size that fit."""


def share(
    nodes: Sequence[Node], workers: int, gpus: int = 0, agents: int = 1, parallel: int | None = None
) -> Share:
    """How replicas with `gpus` devices each are spread over the nodes.

    At most `workers` replicas per agent, and `parallel` agents at once (None: as many of the
    `agents` as have GPUs of their own; agents without GPUs one after the other). A replica never
    spans two machines. Raises UserError when not even one fits.

    >>> share([Node(8, 4), Node(8, 4)], workers=2, gpus=2, agents=5)
    Share(replicas=2, cpus=4, gpus=2, teams=2)
    """
    if gpus:
        total, largest = sum(n.gpus for n in nodes), max((n.gpus for n in nodes), default=0)
        if gpus > largest:
            spread = f", at most {largest} on one machine" if len(nodes) > 1 else ""
            raise UserError(
                f"the agent wants {gpus} GPUs, the cluster has {total}{spread}",
                "set device: cpu in the agent's config, lower its tensor_parallel, or run on a "
                "machine with GPUs",
            )
        nodes = [Node(n.cpus, n.gpus) for n in nodes if n.gpus >= gpus]
        fit = sum(min(n.gpus // gpus, max(n.cpus, 1)) for n in nodes)
    else:
        fit = sum(n.cpus for n in nodes)
    replicas = max(1, min(workers, fit))
    at_once = fit // replicas if parallel is None and gpus else parallel or 1
    teams = max(1, min(at_once, agents, fit // replicas))
    cpus = _cpus_each(nodes, replicas * teams, gpus)
    return Share(replicas, cpus, gpus, teams)


def _cpus_each(nodes: Sequence[Node], replicas: int, gpus: int) -> int:
    """The most CPUs with which so many replicas find a place, none on two machines."""
    for cpus in range(max((n.cpus for n in nodes), default=1), 1, -1):
        places = (min(n.cpus // cpus, n.gpus // gpus if gpus else n.cpus) for n in nodes)
        if sum(places) >= replicas:
            return cpus
    return 1


def cluster_nodes(cpus: int, gpus: int) -> list[Node]:
    """The live nodes of the Ray that this process uses; one of `cpus` and `gpus` without Ray."""
    import ray

    if not ray.is_initialized():
        return [Node(cpus, gpus)]
    alive = (n["Resources"] for n in ray.nodes() if n["Alive"])
    return [Node(int(r.get("CPU", 0)), int(r.get("GPU", 0))) for r in alive]


class Reservation:
    """Places for the replicas of one team; with GPUs all of them at once, or an error."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._group: Any = None

    async def take(self, what: str) -> None:
        """Reserve. Raises UserError when the devices stay taken."""
        import asyncio

        from ray.util.placement_group import placement_group

        if not self.share.gpus or self._group is not None:
            return
        bundle = {"CPU": self.share.cpus, "GPU": self.share.gpus}
        self._group = placement_group([bundle] * self.share.replicas, strategy="SPREAD")
        try:
            await asyncio.wait_for(_answer(self._group.ready()), RESERVE_SECONDS)
        except TimeoutError:
            self.free()
            raise UserError(
                f"{what}: no place for {self.share.replicas} replicas with {self.share.gpus} GPUs "
                f"and {self.share.cpus} CPUs each within {RESERVE_SECONDS:.0f} s",
                "lower collect.workers, or wait until the GPUs are free",
            ) from None

    def options(self, index: int) -> dict[str, Any]:
        """Ray's options for the replica of that index."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy: Any = "SPREAD"
        if self._group is not None:
            strategy = PlacementGroupSchedulingStrategy(self._group, index)
        return {
            "num_cpus": self.share.cpus,
            "num_gpus": self.share.gpus,
            "scheduling_strategy": strategy,
        }

    def free(self) -> None:
        """Give the places back."""
        if self._group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self._group)
            self._group = None


@dataclass
class Seats:
    """Which cores of its host each replica has for itself: no two replicas share one."""

    taken: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, host: str, replica: int, cores: Sequence[int], n: int) -> tuple[int, ...]:
        """n free cores of a host for a replica; empty when there are not so many.

        >>> seats = Seats()
        >>> seats.take("h", 0, range(4), 2), seats.take("h", 1, range(4), 2)
        ((0, 1), (2, 3))
        >>> seats.take("h", 2, range(4), 2)
        ()
        """
        self.leave(replica)
        used = {core for some in self.taken[host].values() for core in some}
        free = [core for core in cores if core not in used]
        if len(free) < n:
            log.info("no %d free cores on %s for replica %d: it is not pinned", n, host, replica)
            return ()
        self.taken[host][replica] = tuple(free[:n])
        return self.taken[host][replica]

    def leave(self, replica: int) -> None:
        """Free a replica's cores, wherever it sat."""
        for host in self.taken.values():
            host.pop(replica, None)


async def _answer(reference: Any) -> Any:
    return await reference
