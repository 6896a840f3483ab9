"""Keys and values of finished turns, for the prompt of the next turn that begins with them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False, slots=True)
class Prefix:
    """What a model has read: `ids` (n), and per layer keys and values (heads, n, dimension)."""

    ids: tuple[int, ...]
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return sum(t.numel() * t.element_size() for pair in self.layers for t in pair)


class Prefixes:
    """A bounded store; the least recently kept goes first. An entry serves one prompt."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.bytes, self.hits = max_bytes, 0, 0
        self._kept: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()
        self._lengths: Counter[int] = Counter()

    def keep(self, prefix: Prefix) -> None:
        """Remember a finished turn."""
        self._drop(prefix.ids)
        self._kept[prefix.ids] = prefix
        self._lengths[len(prefix.ids)] += 1
        self.bytes += prefix.bytes
        while self.bytes > self.max_bytes:
            self._drop(next(iter(self._kept)))

    def take(self, prompt: Sequence[int]) -> Prefix | None:
        """The longest entry that the prompt begins with and goes beyond."""
        prompt = tuple(prompt)
        for n in sorted(self._lengths, reverse=True):
            if n < len(prompt) and (found := self._kept.get(prompt[:n])) is not None:
                self._drop(found.ids)
                self.hits += 1
                return found
        return None

    def _drop(self, ids: tuple[int, ...]) -> None:
        found = self._kept.pop(ids, None)
        if found is not None:
            self.bytes -= found.bytes
            self._lengths -= Counter([len(ids)])
