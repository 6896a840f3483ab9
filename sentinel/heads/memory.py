"""How much GPU memory one fit takes, measured on the largest batches that it can meet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sentinel.heads.config import HeadConfig

MARGIN = 1.15
"""What the allocator may take beyond the measured peak, by fragmentation."""
CONTEXT_BYTES = 2**30
"""The CUDA context and the libraries of one process, which torch's own count leaves out."""

MOST = 64
"""Fits on one GPU at most. (From 100 on, four decimals would not tell the numbers apart.)"""


@dataclass(frozen=True)
class Peak:
    """Bytes that a fit took at most, and those of the whole device; None where nobody measures."""

    fit: int | None
    device: int | None


def measure(config: HeadConfig, device: str) -> Peak:
    """One training step and one scoring batch as long as the windows allow, on a fresh head.

    Only a CUDA device counts its memory: on a CPU the same work is done and nothing is known.
    """
    import torch

    from sentinel.heads.batches import Batches
    from sentinel.heads.fit import seeded
    from sentinel.heads.model import build_model, head_tokenizer
    from sentinel.heads.score import BATCH_TOKENS, score_tokens
    from sentinel.heads.strategy import Strategy, micro_steps
    from sentinel.heads.tokens import Tokenized

    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    tokenizer, specials = head_tokenizer(config)
    scored = max(1, BATCH_TOKENS // config.max_score_tokens)
    rows, length = max(config.batch_size, scored), config.max_score_tokens
    length = max(length, config.max_train_tokens)
    ids = np.full(rows * length, specials.pad, dtype=np.int32)
    # Distinct rows: equal ones would be read once.
    ids[::length] = np.arange(rows) % tokenizer.get_vocab_size()
    tokens = Tokenized(ids, np.arange(rows + 1, dtype=np.int64) * length)
    targets = (np.arange(rows, dtype=np.float32) % 2).reshape(-1, 1)
    with seeded(0):
        model = build_model(config, tokenizer.get_vocab_size(), specials)
        strategy = Strategy(device, config.dtype)
        micro = micro_steps(config, 1)
        strategy.prepare(model, config, micro)
        ones = np.ones((2, 1), dtype=np.float32)
        batches = Batches(tokens, targets, specials, config, ones, micro)
        strategy.model.train()
        for _ in range(2):  # the optimiser's states exist from the second step on
            batches.backward(strategy, np.arange(config.batch_size), "probe")
            strategy.step(config.learning_rate)
        few = tokens.take(np.arange(scored))
        score_tokens(strategy.reader, few, specials, config.max_score_tokens, device=device)
    if not cuda:
        return Peak(None, None)
    total = torch.cuda.get_device_properties(device).total_memory
    return Peak(int(torch.cuda.max_memory_reserved(device)), int(total))


def gpu_share(peak: Peak) -> float:
    """The share of a GPU that one fit asks for: 1/k where k of them fit; 1.0 when unmeasured.

    Rounded down to four decimals, Ray's unit, so that k shares are at most one GPU.
    """
    if not peak.fit or not peak.device:
        return 1.0
    fits = min(max(1, int(peak.device / (peak.fit * MARGIN + CONTEXT_BYTES))), MOST)
    return math.floor(10_000 / fits) / 10_000
