"""How one fit is spread over processes: the few verbs `fit_head` knows, and the plain case.

`Strategy` is one process on one device. A subclass holds one of `world` processes that all run the
same fit: every process draws the same global batches and takes its share of each (`shares`), so
that losses and updates are those of one process, up to rounding. A torch room.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sentinel.heads.config import HeadConfig
from sentinel.heads.model import HeadModel


class Strategy:
    """One process. `dtype` bfloat16: products in bfloat16; weights and optimiser in float32."""

    name = "plain"
    rank = 0
    world = 1
    lockstep = False
    """Whether every process must run the model equally often (weights that are gathered to run)."""

    def __init__(self, device: str = "cpu", dtype: str = "float32") -> None:
        self.device, self.dtype = device, dtype
        self.model: Any = None
        self.optimiser: Any = None
        self.clip = 0.0

    def prepare(self, model: HeadModel, config: HeadConfig, micro_steps: int) -> None:
        """Place the model and make its optimiser, AdamW; `micro_steps` backward passes a step."""
        self.model = model.to(self.device)
        self.optimiser = adamw(model, config)
        self.clip = config.clip

    @property
    def reader(self) -> Any:
        """What scores rows during the fit: a `HeadModel` with the weights of now."""
        return self.model

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Where the model runs: under autocast for bfloat16."""
        if self.dtype == "float32":
            yield
        else:
            with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
                yield

    def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(b, outputs) float32 logits with gradients."""
        with self.precision():
            return self.model(ids.to(self.device), mask.to(self.device)).float()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of this process's part of the global loss."""
        loss.backward()

    def step(self, rate: float) -> None:
        """Clip, and step at this learning rate, once per global batch."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum over processes of a float64 array of equal shape."""
        return values

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the whole model's weights, on the CPU; every process takes part."""
        return copied(self.model.state_dict())

    def finish(self, model: HeadModel, kept: dict[str, torch.Tensor]) -> HeadModel:
        """The model with the kept weights, plain, on the device; the optimiser is dropped."""
        self.optimiser = None
        model.load_state_dict(kept)
        return model.eval()

    def save(self, folder: Path) -> None:
        """Model, optimiser and random state of this process, into a folder of all processes."""
        if self.rank == 0:
            state = {"model": copied(self.model.state_dict())}
            torch.save(state | {"optimiser": self.optimiser.state_dict()}, folder / "state.pt")
        self.save_random(folder)

    def load(self, folder: Path) -> None:
        """Inverse of `save`, after `prepare`."""
        state = torch.load(folder / "state.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.load_random(folder)

    def save_random(self, folder: Path) -> None:
        """The random state of this process."""
        state = {"cpu": torch.get_rng_state()}
        if torch.device(self.device).type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        torch.save(state, folder / f"random-{self.rank}.pt")

    def load_random(self, folder: Path) -> None:
        """Inverse of `save_random`."""
        state = torch.load(folder / f"random-{self.rank}.pt", weights_only=True)
        torch.set_rng_state(state["cpu"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self.device)


class DataParallel(Strategy):
    """One of several processes of an open `torch.distributed` group: gradients are summed.

    By hand and not by torch's wrapper, which averages, and refuses encoders with weights that no
    loss reaches (BERT's pooler).
    """

    name = "data parallel"

    def __init__(self, device: str = "cpu", dtype: str = "float32") -> None:
        super().__init__(device, dtype)
        self.rank = torch.distributed.get_rank()
        self.world = torch.distributed.get_world_size()

    def step(self, rate: float) -> None:
        """Sum the gradients of all processes, clip, step."""
        reached = [p for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([p.grad.reshape(-1) for p in reached])
        torch.distributed.all_reduce(flat)
        for parameter, part in zip(reached, flat.split([p.numel() for p in reached]), strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        super().step(rate)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum over processes of a float64 array of equal shape."""
        total = torch.from_numpy(np.array(values, dtype=np.float64)).to(self.device)
        torch.distributed.all_reduce(total)
        return total.cpu().numpy()


def adamw(model: HeadModel, config: HeadConfig) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices, none on biases and norms."""
    wide = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    narrow = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": wide, "weight_decay": config.weight_decay},
        {"params": narrow, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate)


def copied(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state of its own memory, on the CPU."""
    return {k: v.detach().to("cpu", copy=True).contiguous() for k, v in state.items()}


def micro_steps(config: HeadConfig, world: int) -> int:
    """Forward and backward passes per global batch and process: constant over a fit."""
    if config.micro_batch is None:
        return 1
    return -(-config.batch_size // (world * config.micro_batch))


def shares(size: int, steps: int, world: int, rank: int) -> list[np.ndarray]:
    """Rows of a global batch of `size` that one process takes, per micro-step.

    All processes' shares together hold every row once. Blocks of neighbours (rows are sorted by
    length) go to one micro-step, so that processes wait little for each other. Some are empty where
    the batch is small.
    """
    return [block[rank::world] for block in np.array_split(np.arange(size), steps)]
