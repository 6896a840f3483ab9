"""What heads on a pretrained encoder cost on GPUs: FLOPs, memory, hours, before any is at hand.

FLOPs and activation bytes are measured on random weights of the encoder's own config (nothing is
downloaded, nothing is computed for the FLOPs); how fast a device works through them is assumed, and
said with every figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MFU = 0.35
"""Share of a device's peak that training reaches (model FLOPs utilisation): an assumption."""
CONTEXT_GB = 1.0
"""CUDA's own memory, its libraries and fragmentation: an assumption."""
USABLE = 0.92
"""Share of a device's memory that a fit may plan with."""
STATE_BYTES = 16
"""Per parameter in float32: the weight, its gradient, AdamW's two moments."""
CHARS_PER_TOKEN = 3.0
"""Of rendered transcripts (SQL, numbers, names); prose has more: an assumption on the safe side."""
_LONGEST = 256
_MEMORY_LENGTHS = (16, 48)


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU: memory in GB, peak dense bfloat16 TFLOP/s, and how many of them."""

    name: str
    memory_gb: float
    peak_tflops: float
    count: int = 1


DEVICES = (
    Device("A10, 24 GB", 24, 125),
    Device("A100, 80 GB", 80, 312),
    Device("8 × A100, 80 GB", 80, 312, 8),
)
"""Peaks as their maker states them, without sparsity."""


@dataclass(frozen=True, slots=True)
class EncoderCost:
    """One encoder, measured.

    A forward pass over a row of L tokens takes `flops_token`·L + `flops_pair`·L² FLOPs; training
    keeps `kept_bytes` per token for the backward pass (bfloat16 products, float32 weights), and
    `cast_bytes` once for the weights in bfloat16; `mask_bytes`·L² per row is the attention mask
    of every layer, which SDPA keeps where rows are padded.
    """

    name: str
    parameters: int
    flops_token: float
    flops_pair: float
    kept_bytes: float
    cast_bytes: float
    mask_bytes: float

    def forward(self, length: float) -> float:
        """FLOPs of one forward pass over a row of `length` tokens."""
        return self.flops_token * length + self.flops_pair * length * length

    def training_gb(self, rows: int, length: int) -> float:
        """GB of a training step over `rows` rows of `length` tokens that go through at once."""
        state = self.parameters * STATE_BYTES + self.cast_bytes
        row = self.kept_bytes * length + self.mask_bytes * length * length
        return CONTEXT_GB + (state + rows * row) / 1e9

    def most_rows(self, memory_gb: float, length: int, wanted: int) -> int:
        """Rows of a micro-batch that fit a device, `wanted` at most; 0 where not even one does."""
        room = USABLE * memory_gb
        one, two = self.training_gb(1, length), self.training_gb(2, length)
        return max(0, min(wanted, 1 + int((room - one) // (two - one)))) if room >= one else 0


@dataclass(frozen=True, slots=True)
class Work:
    """The heads of one agent: episodes of the train pool and of all pools, and their prefixes'
    lengths in tokens (one entry per prefix of the pilot's episodes)."""

    train_episodes: float
    episodes: float
    prefixes: float
    lengths: tuple[float, ...]


def measure(shape: Any, name: str) -> EncoderCost:
    """Count the FLOPs and the kept bytes of an encoder from its transformers config.

    FLOPs on torch's `meta` device, where nothing is computed; bytes from two short passes on the
    CPU under bfloat16 autocast, as a fit runs.
    """
    import numpy as np

    from sentinel.heads.encoders import window_of

    longest = min(_LONGEST, window_of(shape) or _LONGEST)
    lengths = (longest // 4, longest // 2, longest)
    flops = [_forward_flops(shape, n) for n in lengths]
    # what a row costs whatever its length is a pooler's, which heads do without
    pair, token, _ = np.polyfit(lengths, np.array(flops, dtype=np.float64), 2)
    parameters, kept = _kept(shape)
    (short, few), (long, many) = zip(_MEMORY_LENGTHS, kept, strict=True)
    per_token = (many - few) / (long - short)
    layers = int(getattr(shape, "num_hidden_layers", 0) or 0)
    return EncoderCost(
        name,
        parameters,
        float(token),
        float(max(pair, 0.0)),
        per_token,
        max(few - per_token * short, 0.0),
        2.0 * layers,
    )


def total_flops(cost: EncoderCost, work: Sequence[Work], heads: Mapping[str, Any]) -> float:
    """FLOPs of both heads of all agents: folds and final fits, early stopping, scoring.

    `heads` is the section of the config. A training pass is three forward passes. Each prefix is
    scored once per head, by the fold that has not seen it or by the final pair.
    """
    total = 0.0
    for agent in work:
        train = _mean(cost, agent.lengths, heads["max_train_tokens"])
        score = _mean(cost, agent.lengths, heads["max_score_tokens"])
        drawn = agent.prefixes if heads["prefixes"] is None else heads["prefixes"]
        # folds fits on (folds − 1)/folds of the pool, and the final one: `folds` whole pools
        passes = heads["folds"] * heads["epochs"] * agent.train_episodes
        fitted = passes * (1 - heads["validation"]) * min(drawn, agent.prefixes) * 3 * train
        stopped = passes * heads["validation"] * agent.prefixes * train
        total += 2 * (fitted + stopped + agent.episodes * agent.prefixes * score)
    return total


def predict(
    cost: EncoderCost,
    work: Sequence[Work],
    heads: Mapping[str, Any],
    devices: Sequence[Device] = DEVICES,
) -> list[dict[str, Any]]:
    """One row per kind of device, JSON-able: micro-batch, GB of a fit, fits at once, hours.

    `hours` is None where not even one row of the training window fits.
    """
    flops = total_flops(cost, work, heads)
    length = heads["max_train_tokens"]
    fits = 2 * (heads["folds"] + 1) * len(work)
    rows = []
    for device in devices:
        wanted = min(heads["batch_size"], heads.get("micro_batch") or heads["batch_size"])
        batch = cost.most_rows(device.memory_gb, length, wanted)
        used = min(device.count, fits)
        speed = device.peak_tflops * 1e12 * MFU * used
        rows.append(
            {
                **asdict(device),
                "encoder": cost.name,
                "micro_batch": batch or None,
                "accumulated": -(-heads["batch_size"] // batch) if batch else None,
                "fit_gb": cost.training_gb(max(batch, 1), length),
                "fits": fits,
                "flops": flops,
                "hours": flops / speed / 3600 if batch else None,
                "mfu": MFU,
            }
        )
    return rows


def _mean(cost: EncoderCost, lengths: Sequence[float], window: int) -> float:
    return sum(cost.forward(min(n, window)) for n in lengths) / max(len(lengths), 1)


def _forward_flops(shape: Any, length: int) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModel

    with torch.device("meta"):
        model = AutoModel.from_config(shape, attn_implementation="sdpa")
        ids = torch.zeros((1, length), dtype=torch.long)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(input_ids=ids)
    return int(counter.get_total_flops())


def _kept(shape: Any) -> tuple[int, list[float]]:
    """Parameters, and the bytes that a forward pass keeps at each of the short lengths."""
    import torch
    from transformers import AutoModel

    with torch.device("meta"):
        model = AutoModel.from_config(shape, attn_implementation="sdpa").train()
    model.to_empty(device="cpu")
    tensors = [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        tensor.data.zero_()  # what is kept depends on shapes alone
    own = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    found = []
    for length in _MEMORY_LENGTHS:
        kept: dict[int, int] = {}
        alive: list[Any] = []

        def pack(x: Any, kept: dict[int, int] = kept, alive: list[Any] = alive) -> Any:
            storage = x.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
                alive.append(storage)  # so that no address is used twice
            return x

        ids = torch.zeros((1, length), dtype=torch.long)
        with (
            torch.random.fork_rng(),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x),
            torch.autocast("cpu", dtype=torch.bfloat16),
        ):
            model(input_ids=ids)
        found.append(float(sum(kept.values())))
    return sum(p.numel() for p in model.parameters()), found
