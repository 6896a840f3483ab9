"""One engine on the devices of several machines: the places that vLLM's Ray backend needs.

vLLM (`distributed_executor_backend="ray"`) puts one worker into each one-device bundle of the
placement group that the engine's own actor runs in. That actor holds no device itself; its first
bundle is beside it, and it needs a network between the machines that is fit for tensor parallelism
(else: as many tensor-parallel parts as one machine has devices, and pipeline stages across
machines).
"""

from __future__ import annotations

import os
from typing import Any

from sentinel.errors import UserError

RESERVE_SECONDS = 120.0
"""How long replicas with GPUs wait for their places."""


class Span:
    """A placement group of one-device bundles, as few machines as possible."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._group: Any = None

    def reserve(self) -> Any:
        """Ask for the places; the reference is ready when they are there."""
        from ray.util.placement_group import placement_group

        bundles = [{"CPU": 1, "GPU": 1}] * self.devices
        self._group = placement_group(bundles, strategy="PACK")
        return self._group.ready()

    def take(self, what: str, seconds: float = RESERVE_SECONDS) -> None:
        """Reserve. Raises UserError when the devices stay taken."""
        import ray

        ready, _ = ray.wait([self.reserve()], timeout=seconds)
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


def lead_to_ray() -> None:
    """Let the processes that this actor starts find its Ray.

    The core of vLLM is a driver of its own and calls `ray.init()`, which without an address finds
    somebody else's Ray on this machine, or starts one.
    """
    import ray

    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
