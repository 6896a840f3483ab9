"""One engine on the devices of several machines: the places that vLLM's Ray backend needs.

vLLM (`distributed_executor_backend="ray"`) puts one worker into each one-device bundle of the
placement group that the engine's own actor runs in. That actor holds no device itself; its first
bundle is beside it, and it needs a network between the machines that is fit for tensor parallelism
(else: as many tensor-parallel parts as one machine has devices, and pipeline stages across
machines).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.placement import RESERVE_SECONDS, Node
from sentinel.errors import UserError


def spans(nodes: Sequence[Node], devices: int) -> bool:
    """Whether an engine of so many devices fits the cluster, but no single machine.

    >>> spans([Node(8, 4), Node(8, 4)], 8), spans([Node(8, 4), Node(8, 4)], 4)
    (True, False)
    >>> spans([Node(8, 4)], 8)
    False
    """
    usable = [min(node.gpus, node.cpus) for node in nodes]
    return max(usable, default=0) < devices <= sum(usable)


class Span:
    """A placement group of one-device bundles, as few machines as possible."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._group: Any = None

    def take(self, what: str, seconds: float = RESERVE_SECONDS) -> None:
        """Reserve. Raises UserError when the devices stay taken."""
        import ray
        from ray.util.placement_group import placement_group

        bundles = [{"CPU": 1, "GPU": 1}] * self.devices
        self._group = placement_group(bundles, strategy="PACK")
        ready, _ = ray.wait([self._group.ready()], timeout=seconds)
        if not ready:
            self.free()
            raise UserError(
                f"{what}: no {self.devices} GPUs with a CPU each are free within {seconds:.0f} s",
                "lower tensor_parallel, ask for more nodes, or wait until the GPUs are free",
            )

    def options(self) -> dict[str, Any]:
        """Ray's options for the actor that holds the engine: what it starts stays in the group."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(
            self._group, 0, placement_group_capture_child_tasks=True
        )
        return {"num_cpus": 0, "num_gpus": 0, "scheduling_strategy": strategy}

    def free(self) -> None:
        """Give the devices back."""
        if self._group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self._group)
            self._group = None
