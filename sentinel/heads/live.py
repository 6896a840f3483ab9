"""The text heads in a live monitor: one turn's text in, one float64 logit per head out.

A monitor meets the same prefixes as the batch scorer, one at a time. Each is tokenised once for
all heads, and of a text that has grown only the new lines are; the logits are those of
`sentinel.heads.score` to 2e-5 in float32 (batches differ in their order of summation only).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sentinel.heads.lines import LineTokens, cut_by_line
from sentinel.heads.score import prepare, score_heads
from sentinel.heads.tfidf import TfidfHead
from sentinel.heads.tokens import Specials, Tokenized, flatten

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class LiveHeads:
    """Heads that read the same text: a pair, or a shared encoder with its two logits.

    `models` are `HeadModel`s over one tokenizer, in the order in which their logits are wanted
    (answerability, correctness); `window` is in tokens, specials included, as in scoring.
    """

    def __init__(
        self,
        models: Sequence[Any],
        tokenizer: Tokenizer,
        specials: Specials,
        window: int,
        *,
        device: str = "cpu",
    ) -> None:
        self.models = tuple(models)
        self.specials = specials
        self.window = window
        self.device = device
        self._tokenizer = tokenizer
        self._by_line = cut_by_line(tokenizer)

    def episode(self) -> LiveEpisode:
        """The heads on one episode; it remembers the lines that it has read."""
        return LiveEpisode(self, LineTokens(self._tokenizer, self._by_line))

    def tokens(self, texts: Sequence[str]) -> Tokenized:
        """Ids of the prefixes of a pool, a row each, special tokens excepted; each line once."""
        return flatten(LineTokens(self._tokenizer, self._by_line).read(texts))

    def score(self, text: str) -> np.ndarray:
        """(outputs,) float64 logits of one text."""
        return self.episode().score(text)

    def score_ids(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """(n, outputs) float64 logits of n rows of token ids, specials excepted.

        Raises HeadFailure for a logit that is not finite: a gate never sees NaN from here.
        """
        prepared = prepare(flatten(rows), self.specials, self.window)
        return score_heads(self.models, prepared, device=self.device)


class LiveEpisode:
    """One episode's prefixes, in order or not: every line is tokenised once."""

    def __init__(self, heads: LiveHeads, tokens: LineTokens) -> None:
        self._heads = heads
        self._tokens = tokens
        self._last: tuple[str, np.ndarray] | None = None

    def score(self, text: str) -> np.ndarray:
        """(outputs,) float64 logits of the text so far; asked again (gate, stop), they are kept."""
        if self._last is None or self._last[0] != text:
            self._last = text, self._heads.score_ids([self._tokens.ids(text)])[0]
        return self._last[1].copy()


class LiveTfidf:
    """TF–IDF heads behind the same two methods."""

    def __init__(self, heads: Sequence[TfidfHead]) -> None:
        self.heads = tuple(heads)

    def episode(self) -> LiveTfidf:
        """Nothing is remembered: the heads themselves."""
        return self

    def score(self, text: str) -> np.ndarray:
        """(heads,) float64 logits of one text."""
        return np.array([head.logits([text])[0] for head in self.heads], dtype=np.float64)
