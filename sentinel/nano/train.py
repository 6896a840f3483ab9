"""Teacher forcing on whole episodes, loss on the agent's tokens only (a torch room)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM


@dataclass(frozen=True, slots=True)
class Example:
    """One episode: ids (n,) int64, and which of them the agent wrote (n,) bool."""

    ids: np.ndarray
    written: np.ndarray


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long (`tokens` seen in all, padding excluded) and how fast (`lr` after the warm-up)."""

    tokens: int
    lr: float
    batch_tokens: int = 8192
    warmup: float = 0.03
    seed: int = 0


def batches(examples: Sequence[Example], batch_tokens: int, seed: int) -> Iterator[list[Example]]:
    """Endless epochs of length-bucketed batches of about `batch_tokens` padded tokens."""
    generator = np.random.default_rng(seed)
    lengths = np.array([len(e.ids) for e in examples])
    while True:
        jitter = lengths + generator.uniform(0, 16, len(lengths))
        order = np.argsort(jitter, kind="stable")
        epoch: list[list[Example]] = []
        batch: list[int] = []
        for index in order:
            if batch and (len(batch) + 1) * lengths[index] > batch_tokens:
                epoch.append([examples[i] for i in batch])
                batch = []
            batch.append(index)
        epoch.append([examples[i] for i in batch])
        for place in generator.permutation(len(epoch)):
            yield epoch[place]


def collate(batch: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids (B, L) and targets (B, L), −100 where the agent did not write."""
    width = max(len(e.ids) for e in batch)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    targets = np.full((len(batch), width), -100, dtype=np.int64)
    for row, example in enumerate(batch):
        n = len(example.ids)
        ids[row, :n] = example.ids
        targets[row, :n] = np.where(example.written, example.ids, -100)
    return torch.from_numpy(ids), torch.from_numpy(targets)


def fit(
    model: LlamaForCausalLM,
    examples: Sequence[Example],
    schedule: Schedule,
    report: Callable[[str], None] = print,
    threads: int | None = None,
) -> float:
    """Train in place; returns the mean loss (nats per written token) of the last tenth.

    Matrices are trained by Muon, embeddings and norms by AdamW; the learning rate falls linearly.
    """
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimisers = [
        torch.optim.Muon(
            matrices, lr=schedule.lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=schedule.lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    model.train()
    seen, losses, start = 0, [], time.monotonic()
    stream = batches(examples, schedule.batch_tokens, schedule.seed)
    spoken = start
    while seen < schedule.tokens:
        batch = next(stream)
        ids, targets = collate(batch)
        share = seen / schedule.tokens
        factor = min(1.0, share / schedule.warmup + 0.05) * (1.0 - share)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = schedule.lr * factor
            optimiser.zero_grad(set_to_none=True)
        wanted = targets[:, 1:]
        mask = wanted != -100
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state
            logits = model.lm_head(hidden[mask])
        loss = F.cross_entropy(logits.float(), wanted[mask])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise FloatingPointError(f"loss {value} after {seen} tokens")
        seen += sum(len(e.ids) for e in batch)
        losses.append(value)
        if time.monotonic() - spoken > 15:
            spoken = time.monotonic()
            rate = seen / (spoken - start)
            recent = float(np.mean(losses[-50:]))
            report(f"{seen / schedule.tokens:4.0%}  loss {recent:.4f}  {rate:,.0f} tokens/s")
    return float(np.mean(losses[-max(1, len(losses) // 10) :]))
