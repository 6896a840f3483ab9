"""Texts that grow line by line, tokenised a line at a time: each distinct line once.

The prefixes of an episode repeat one another: the tokens of t = 3 begin with those of t = 2. Where
no token of a tokenizer crosses the start of a line, the ids of a text are those of its lines, one
after the other, and a line that was read before is not read again. Whether that holds is asked of
the tokenizer itself; where it does not, texts are read whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_START = re.compile(r"(?<=\S\n)(?=\S)")
"""The start of a line, one line break after visible text: never inside a run of white space."""
_PROBES = (
    "a",
    "Z9",
    "7",
    "_",
    "(",
    ")",
    ")).",
    ";",
    "'s",
    "'",
    "é",
    "中",
    "🙂",
    "\u0301",
    "-- x",
    '"',
)


def lines(text: str) -> list[str]:
    """The text cut at the starts of its lines; joined again it is the text.

    >>> lines("QUESTION: a\\nSTEP 1 SQL: b\\n\\n c")
    ['QUESTION: a\\n', 'STEP 1 SQL: b\\n\\n c']
    """
    return _START.split(text)


def cut_by_line(tokenizer: Tokenizer) -> bool:
    """Are the ids of every text those of its lines?

    Asked of the normaliser and the pre-tokeniser, with characters of every kind on both sides of a
    line break; added tokens that hold a line break or eat the space around them speak against it.
    """
    if tokenizer.pre_tokenizer is None:
        return False
    for token in json.loads(tokenizer.to_str())["added_tokens"]:
        if not token["special"] and (
            "\n" in token["content"] or token["lstrip"] or token["rstrip"]
        ):
            return False
    pairs = [(f"{x}\n", y) for x in (*_PROBES, *(f"a {p}" for p in _PROBES)) for y in _PROBES]
    return all(
        _words(tokenizer, a + b) == _words(tokenizer, a) + _words(tokenizer, b) for a, b in pairs
    )


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    normalizer = tokenizer.normalizer
    seen = text if normalizer is None else normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(seen)]


class LineTokens:
    """Ids of texts, special tokens excepted; what was read once, line or text, is remembered.

    Memory grows with the distinct lines; use one for a pool, or for an episode.
    """

    def __init__(self, tokenizer: Tokenizer, by_line: bool | None = None) -> None:
        self._tokenizer = tokenizer
        self.by_line = cut_by_line(tokenizer) if by_line is None else by_line
        self._known: dict[str, np.ndarray] = {}

    def ids(self, text: str) -> np.ndarray:
        """int32 ids of one text."""
        return self.read([text])[0]

    def read(self, texts: Iterable[str]) -> list[np.ndarray]:
        """int32 ids of every text."""
        pieces = [lines(text) if self.by_line else [text] for text in texts]
        self.learn([piece for row in pieces for piece in row])
        known = self._known
        return [
            known[row[0]] if len(row) == 1 else np.concatenate([known[piece] for piece in row])
            for row in pieces
        ]

    def piece(self, piece: str) -> np.ndarray:
        """int32 ids of a line or text that was read before."""
        return self._known[piece]

    def remember(self, pieces: Iterable[str], tokens: Iterable[np.ndarray]) -> None:
        """Take over what another reader of the same tokenizer has read."""
        self._known.update(zip(pieces, tokens, strict=True))

    def learn(self, pieces: Sequence[str]) -> None:
        """Read the pieces that are new, in one batch."""
        new = [p for p in dict.fromkeys(pieces) if p not in self._known]
        encodings = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        for piece, encoding in zip(new, encodings, strict=True):
            self._known[piece] = np.array(encoding.ids, dtype=np.int32)
