"""One process of a fit under DeepSpeed: gradients, optimiser states and weights are sharded.

Needs an open `torch.distributed` group (Ray Train opens it) and the `train` extra. The numbers are
those of `sentinel.heads.strategy.DataParallel` up to rounding: weights and optimiser in float32,
products in bfloat16 where the config says so, gradients summed in float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sentinel.heads.config import HeadConfig
from sentinel.heads.model import HeadModel
from sentinel.heads.strategy import DataParallel, adamw, copied

_TAG = "deepspeed"


class DeepSpeed(DataParallel):
    """ZeRO `stage` 0 (nothing is sharded) to 3 (weights too)."""

    def __init__(self, stage: int, device: str = "cpu", dtype: str = "float32") -> None:
        super().__init__(device, dtype)
        self.stage, self.name = stage, f"ZeRO-{stage}"
        self.lockstep = stage == 3
        self._engine: Any = None
        self._steps = self._at = 0

    def prepare(self, model: HeadModel, config: HeadConfig, micro_steps: int) -> None:
        """Hand the model and its optimiser to DeepSpeed."""
        deepspeed = load()
        self._steps = micro_steps
        model = model.to(self.device)
        settings = settings_of(self.stage, config, micro_steps, self.world)
        self._engine, self.optimiser, _, _ = deepspeed.initialize(
            model=model, optimizer=adamw(model, config), config=settings, dist_init_required=False
        )
        self.model = self._engine

    @property
    def reader(self) -> Any:
        """The module behind DeepSpeed's engine; None once the fit is finished."""
        return None if self._engine is None else self._engine.module

    def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(b, outputs) float32 logits; DeepSpeed's own autocast is around them."""
        return self._engine(ids.to(self.device), mask.to(self.device)).float()

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of a part. DeepSpeed takes means over processes and micro-steps: undone."""
        self._engine.backward(loss * (self.world * self._steps))
        self._at = (self._at + 1) % self._steps
        if self._at:
            self._engine.step()  # no boundary: it counts

    def step(self, rate: float) -> None:
        """Clip, and step at this learning rate, once per global batch."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self._engine.step()

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the whole model's weights, on the CPU; gathered where they are sharded."""
        if self.stage < 3:
            return copied(self.reader.state_dict())
        with load().zero.GatheredParameters(list(self.reader.parameters())):
            return copied(self.reader.state_dict())

    def finish(self, model: HeadModel, kept: dict[str, torch.Tensor]) -> HeadModel:
        """A plain head with the kept weights: that of DeepSpeed has its hooks and shards."""
        from transformers import AutoModel

        encoder = AutoModel.from_config(model.encoder.config, attn_implementation="sdpa")
        width, outputs = model.norm.normalized_shape[0], model.out.out_features
        plain = HeadModel(encoder, width, model.pooling, outputs, model.dropout.p)
        self._engine.destroy()
        self._engine = self.model = None
        return super().finish(plain.to(self.device), kept)

    def save(self, folder: Path) -> None:
        """DeepSpeed's own checkpoint, a file per process, and the random state."""
        self._engine.save_checkpoint(str(folder), tag=_TAG)
        self.save_random(folder)

    def load(self, folder: Path) -> None:
        """Inverse of `save`, after `prepare`."""
        self._engine.load_checkpoint(str(folder), tag=_TAG)
        self.load_random(folder)


def settings_of(stage: int, config: HeadConfig, micro_steps: int, world: int) -> dict[str, Any]:
    """DeepSpeed's config of a fit. Batch sizes are nominal: `fit_head` cuts the batches itself."""
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro_steps,
        "train_batch_size": micro_steps * world,
        "gradient_clipping": config.clip,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }
    if config.dtype == "bfloat16":
        # No module's gradients travel in bfloat16: a head is small, and rounding would add up.
        settings["torch_autocast"] = {
            "enabled": True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],
        }
    return settings


def load() -> Any:
    """The deepspeed package, quiet, and on a CPU without kernels that it would compile first."""
    import logging

    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # Shared-memory reduction between CPU processes: a minute of compiling on every new machine,
    # and a compiler; gloo does the same work.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
