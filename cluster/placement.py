"""Where replicas go: how many fit, what each gets, and Ray's options for it.

A replica holds all the devices of its engine itself (`num_gpus` = tensor parallel): vLLM starts its
workers in the replica's process tree, and they see what the replica sees. Nothing hides a device.
Where no machine has so many, vLLM's workers are Ray actors on the devices of several (`Span`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.span import RESERVE_SECONDS, Span
from sentinel.errors import UserError

log = logging.getLogger(__name__)


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
    spans: bool = False
    """No machine has the devices of a replica: its engine runs over several."""


def spans(nodes: Sequence[Node], devices: int) -> bool:
    """Whether an engine of so many devices fits the cluster, but no single machine.

    >>> spans([Node(8, 4), Node(8, 4)], 8), spans([Node(8, 4), Node(8, 4)], 4)
    (True, False)
    >>> spans([Node(8, 4)], 8), spans([Node(8, 4), Node(2, 4)], 8)
    (False, False)
    """
    return max((n.gpus for n in nodes), default=0) < devices <= sum(map(_bundles, nodes))


def share(
    nodes: Sequence[Node],
    workers: int,
    gpus: int = 0,
    agents: int = 1,
    parallel: int | None = None,
    *,
    can_span: bool = False,
) -> Share:
    """How replicas with `gpus` devices each are spread over the nodes.

    At most `workers` replicas per agent, and `parallel` agents at once (None: as many of the
    `agents` as have GPUs of their own; agents without GPUs one after the other). A replica spans
    machines only where no single one has its devices, and its engine `can_span` (vLLM). Raises
    UserError when not even one fits.

    >>> share([Node(8, 4), Node(8, 4)], workers=2, gpus=2, agents=5)
    Share(replicas=2, cpus=4, gpus=2, teams=2, spans=False)
    >>> share([Node(8, 4), Node(8, 4)], workers=2, gpus=8, can_span=True)
    Share(replicas=1, cpus=1, gpus=8, teams=1, spans=True)
    """
    spanning = can_span and spans(nodes, gpus)
    if spanning:
        fit = sum(map(_bundles, nodes)) // gpus
    elif gpus:
        if gpus > max((n.gpus for n in nodes), default=0):
            raise _too_many(nodes, gpus, can_span)
        nodes = [Node(n.cpus, n.gpus) for n in nodes if n.gpus >= gpus]
        fit = sum(min(n.gpus // gpus, max(n.cpus, 1)) for n in nodes)
    else:
        fit = sum(n.cpus for n in nodes)
    replicas = max(1, min(workers, fit))
    at_once = fit // replicas if parallel is None and gpus else parallel or 1
    teams = max(1, min(at_once, agents, fit // replicas))
    if spanning:
        return Share(replicas, 1, gpus, teams, spans=True)
    cpus = _cpus_each(nodes, replicas * teams, gpus)
    return Share(replicas, cpus, gpus, teams)


def _bundles(node: Node) -> int:
    """Devices of a machine that have a CPU beside them, as each bundle of a span wants."""
    return min(node.gpus, node.cpus)


def _too_many(nodes: Sequence[Node], gpus: int, can_span: bool) -> UserError:
    """Why so many devices fit no machine, nor the cluster, and the ways out."""
    total, largest = sum(n.gpus for n in nodes), max((n.gpus for n in nodes), default=0)
    spread = f", at most {largest} on one machine" if len(nodes) > 1 else ""
    cause = f"the agent wants {gpus} GPUs, the cluster has {total}{spread}"
    if gpus > total:
        more = "set site.nodes or site.gpus so that" if total else "run where GPUs are visible, and"
        return UserError(
            cause,
            f"lower its tensor_parallel, {more} the run has {gpus} of them, or set device: cpu in "
            "the agent's config",
        )
    if not can_span:
        return UserError(
            cause,
            f"lower its tensor_parallel to at most {largest}, or set engine: vllm, which can use "
            "the GPUs of several machines",
        )
    return UserError(
        f"{cause}, of which {sum(map(_bundles, nodes))} have a CPU each",
        f"lower its tensor_parallel to at most {largest}, or ask for a CPU per GPU (site.cpus)",
    )


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
        self._spans: list[Span] = []
        """One per replica, where each runs over several machines."""

    async def take(self, what: str) -> None:
        """Reserve. Raises UserError when the devices stay taken."""
        import asyncio

        from ray.util.placement_group import placement_group

        if not self.share.gpus or self._group is not None or self._spans:
            return
        cpus = self.share.cpus
        if self.share.spans:
            cpus = self.share.gpus
            self._spans = [Span(self.share.gpus) for _ in range(self.share.replicas)]
            wanted = [span.reserve() for span in self._spans]
        else:
            bundle = {"CPU": cpus, "GPU": self.share.gpus}
            self._group = placement_group([bundle] * self.share.replicas, strategy="SPREAD")
            wanted = [self._group.ready()]
        try:
            places = asyncio.gather(*map(_answer, wanted))
            await asyncio.wait_for(places, RESERVE_SECONDS)
        except TimeoutError:
            self.free()
            raise UserError(
                f"{what}: no place for {self.share.replicas} replicas with {self.share.gpus} GPUs "
                f"and {cpus} CPUs each within {RESERVE_SECONDS:.0f} s",
                "lower collect.workers, or wait until the GPUs are free",
            ) from None

    def options(self, index: int) -> dict[str, Any]:
        """Ray's options for the replica of that index."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if self._spans:
            return self._spans[index].options()
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
        for span in self._spans:
            span.free()
        self._spans = []
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
