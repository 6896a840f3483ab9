"""Logits of every prefix: equal prefixes once, batches of similar length, float64 out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sentinel.heads.tokens import Specials, Tokenized

BATCH_TOKENS = 16_384
"""Padded tokens per scoring batch."""


def score_tokens(
    model: Any,
    tokens: Tokenized,
    specials: Specials,
    window: int,
    *,
    device: str = "cpu",
    batch_tokens: int = BATCH_TOKENS,
) -> np.ndarray:
    """(n, outputs) float64 logits of a `HeadModel`. Rows of equal ids are read once."""
    import torch

    distinct, index = deduplicate(tokens)
    lengths = distinct.lengths(specials, window)
    outputs = int(model.out.out_features)
    out = np.zeros((len(distinct), outputs))
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for rows in length_batches(lengths, batch_tokens):
            ids, mask = distinct.batch(rows, specials, window)
            logits = model(torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device))
            out[rows] = logits.double().cpu().numpy()
    model.train(was_training)
    return out[index]


def deduplicate(tokens: Tokenized) -> tuple[Tokenized, np.ndarray]:
    """Rows of distinct ids, in order of first appearance, and (n,) where each row is among them."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    index = np.zeros(len(tokens), dtype=np.int64)
    for row in range(len(tokens)):
        key = tokens.ids[tokens.starts[row] : tokens.starts[row + 1]].tobytes()
        if key not in seen:
            seen[key] = len(first)
            first.append(row)
        index[row] = seen[key]
    return tokens.take(np.array(first, dtype=np.int64)), index


def length_batches(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Row indices by ascending length, at most `batch_tokens` padded tokens a batch."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    for at in range(1, len(order) + 1):
        full = at < len(order) and lengths[order[at]] * (at - start + 1) > batch_tokens
        if at == len(order) or full:
            yield order[start:at]
            start = at
