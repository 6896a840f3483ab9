"""Batches of passes of like length: each is as wide as its longest pass, and waste is bounded."""

from __future__ import annotations

from collections.abc import Sequence

SLACK = 16
"""Tokens of padding that are never worth another batch."""


def pack(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Indices of `lengths` in batches, longest first.

    A batch of m passes, padded to its longest, holds at most `tokens` tokens (a longer pass goes
    alone), and no pass in it is shorter than 7/8 of the longest less 16 tokens. Equal lengths keep
    their order, so the batches depend on the lengths alone. Raises ValueError for `tokens` < 1.

    >>> pack([10, 300, 12, 290, 11], tokens=600)
    [[1, 3], [2, 4, 0]]
    """
    if tokens < 1:
        raise ValueError(f"a batch of {tokens} tokens holds nothing")
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches:
            longest = lengths[batches[-1][0]]
            fits = longest * (len(batches[-1]) + 1) <= tokens
            if fits and lengths[i] >= longest * 7 // 8 - SLACK:
                batches[-1].append(i)
                continue
        batches.append([i])
    return batches


def padding(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Share of the batches' tokens that is padding; 0.0 without any.

    >>> padding([4, 2], [[0, 1]])
    0.25
    """
    padded = sum(max(lengths[i] for i in b) * len(b) for b in batches)
    return 1.0 - sum(lengths) / padded if padded else 0.0
