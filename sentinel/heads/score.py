"""Logits of every prefix: equal prefixes once, batches of similar length, float64 out.

The prefixes are prepared once (`prepare`) and read by any number of heads with the same tokenizer
and window (`score_heads`): both heads of a pair, the shared encoder, the heads of several agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentinel.heads.config import HeadFailure
from sentinel.heads.tokens import Specials, Tokenized

BATCH_TOKENS = 16_384
"""Padded tokens per scoring batch."""


@dataclass(frozen=True)
class Prepared:
    """Prefixes in batches: the `distinct` rows, (n,) where each prefix is among them, and batches.

    `batches` are arrays of row indices of `distinct`, by ascending length.
    """

    distinct: Tokenized
    index: np.ndarray
    specials: Specials
    window: int
    batches: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def tokens(self) -> int:
        """Tokens that a head reads, specials included, padding not."""
        return int(self.distinct.lengths(self.specials, self.window).sum())

    @property
    def padding(self) -> float:
        """Share of the padded batches that is padding; 0.0 without any rows."""
        lengths = self.distinct.lengths(self.specials, self.window)
        padded = sum(int(lengths[rows].max()) * len(rows) for rows in self.batches)
        return 1.0 - self.tokens / padded if padded else 0.0


def prepare(
    tokens: Tokenized, specials: Specials, window: int, batch_tokens: int = BATCH_TOKENS
) -> Prepared:
    """Put prefixes into batches of similar length, at most `batch_tokens` padded tokens each.

    Rows of equal ids, such as t = 0 of a question for every agent, are one.
    """
    distinct, index = deduplicate(tokens)
    batches = tuple(length_batches(distinct.lengths(specials, window), batch_tokens))
    return Prepared(distinct, index, specials, window, batches)


def score_heads(models: Sequence[Any], prepared: Prepared, *, device: str = "cpu") -> np.ndarray:
    """(n, outputs of all models) float64 logits of `HeadModel`s, in the models' order.

    The models are moved to `device`, where they stay. Raises HeadFailure for a logit that is not
    finite.
    """
    found = read_batches(models, prepared, prepared.batches, device=device)
    out = np.zeros_like(found)
    if prepared.batches:
        out[np.concatenate(prepared.batches)] = found
    return out[prepared.index]


def read_batches(
    models: Sequence[Any], prepared: Prepared, batches: Sequence[np.ndarray], *, device: str
) -> np.ndarray:
    """Logits of some of the batches, a row per row of theirs, in their order (`score_heads`)."""
    import torch

    from sentinel.heads.model import attention, fastest_attention

    parts = []
    with ExitStack() as settings:
        settings.enter_context(torch.inference_mode())
        for model in models:
            settings.callback(model.train, model.training)
            model.eval().to(device)
        names = [fastest_attention(model, device) for model in models]
        for rows in batches:
            ids, mask = prepared.distinct.batch(rows, prepared.specials, prepared.window)
            batch = torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
            logits = []
            for model, name in zip(models, names, strict=True):
                with attention(model, name):
                    logits.append(model(*batch).double())
            parts.append(torch.cat(logits, dim=1))
        # Fetched at the end: a GPU computes on while the next batches are laid out.
        outputs = sum(int(model.out.out_features) for model in models)
        found = torch.cat(parts).cpu().numpy() if parts else np.zeros((0, outputs))
    if not np.isfinite(found).all():
        broken = int((~np.isfinite(found)).any(axis=1).sum())
        raise HeadFailure(
            f"the logits of {broken} prefixes are not finite (attention {', '.join(set(names))})"
        )
    return np.asarray(found)


def score_tokens(
    model: Any,
    tokens: Tokenized,
    specials: Specials,
    window: int,
    *,
    device: str = "cpu",
    batch_tokens: int = BATCH_TOKENS,
) -> np.ndarray:
    """(n, outputs) float64 logits of one `HeadModel`. Rows of equal ids are read once."""
    return score_heads([model], prepare(tokens, specials, window, batch_tokens), device=device)


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
