"""The batches of a fit: which rows, what a process reads of them, and their loss. A torch room."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from sentinel.heads.config import HeadConfig
from sentinel.heads.strategy import Strategy, shares
from sentinel.heads.tokens import Specials, Tokenized

BUCKET = 16
"""Batches per bucket: rows are shuffled, then sorted by length within a bucket."""


@dataclass(frozen=True)
class Batches:
    """What every process of a fit knows of its rows: `targets` (n, outputs), class `weights`."""

    tokens: Tokenized
    targets: np.ndarray
    specials: Specials
    config: HeadConfig
    weights: np.ndarray
    micro_steps: int

    def backward(self, strategy: Strategy, rows: np.ndarray, key: str) -> tuple[float, int]:
        """Gradients of a global batch; its loss (not finite: as it is) and its real tokens.

        `key` names the batch: its hidden tokens are drawn from it, the same in every process.
        """
        ids, mask = self.tokens.batch(rows, self.specials, self.config.max_train_tokens)
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        shown = hide(torch.from_numpy(ids), self.specials, self.config.token_dropout, generator)
        count = int((~np.isnan(self.targets[rows])).sum())
        total = 0.0
        for part in shares(len(rows), self.micro_steps, strategy.world, strategy.rank):
            target = self.targets[rows[part]]
            if not part.size:  # every process steps equally often: a row that counts nothing
                part, target = np.zeros(1, dtype=np.int64), np.full_like(self.targets[:1], np.nan)
            width = int(mask[part].sum(axis=1).max())
            logits = strategy.logits(shown[part, :width], torch.from_numpy(mask[part, :width]))
            target = torch.from_numpy(target).to(logits.device)
            loss = masked_loss(logits, target, self.weights, count)
            total += float(loss.detach())
            strategy.backward(loss)
        return float(strategy.sum(np.array([total]))[0]), int(mask.sum())


def hide(
    ids: torch.Tensor, specials: Specials, share: float, generator: torch.Generator | None = None
) -> torch.Tensor:
    """The ids with a share of them, specials excepted, replaced by the padding id.

    A few hundred episodes are learnt by heart otherwise; positions and mask stay as they are.
    """
    if not share:
        return ids
    kept = torch.tensor(specials.before + specials.after, dtype=ids.dtype)
    hidden = (torch.rand(ids.shape, generator=generator) < share) & ~torch.isin(ids, kept)
    return torch.where(hidden, torch.full_like(ids, specials.pad), ids)


def masked_loss(
    logits: torch.Tensor, targets: torch.Tensor, weights: np.ndarray, count: int | None = None
) -> torch.Tensor:
    """Weighted binary cross-entropy, mean over the batch; NaN targets count nothing.

    `count`: targets of the global batch that these rows are a part of; the parts' losses add up.
    """
    known = ~torch.isnan(targets)
    target = torch.where(known, targets, torch.zeros_like(targets))
    scale = torch.from_numpy(weights).to(logits)
    weight = torch.where(target > 0.5, scale[1], scale[0]) * known
    loss = binary_cross_entropy_with_logits(logits, target, reduction="none")
    total = known.sum() if count is None else torch.tensor(count, device=logits.device)
    return (loss * weight).sum() / total.clamp(min=1)


def class_weights(targets: np.ndarray, how: str) -> np.ndarray:
    """(2, outputs) weights of the negative and positive class; `balanced`: mean 1 over the rows."""
    if how == "none":
        return np.ones((2, targets.shape[1]), dtype=np.float32)
    positive, known = np.nansum(targets, axis=0), (~np.isnan(targets)).sum(axis=0)
    counts = np.stack([known - positive, positive])
    return (known / np.maximum(2.0 * counts, 1.0)).astype(np.float32)


def bucketed(
    rows: np.ndarray, lengths: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Batches of `size` rows of similar length, in random order; every row exactly once."""
    rows = rng.permutation(rows)
    batches = []
    for start in range(0, len(rows), BUCKET * size):
        chunk = rows[start : start + BUCKET * size]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + size] for i in range(0, len(chunk), size)]
    for at in rng.permutation(len(batches)):
        yield batches[at]
