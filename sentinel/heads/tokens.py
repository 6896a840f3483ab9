"""Prefixes as token ids in flat arrays: tokenised once, cut on the left, closed by the specials.

A prefix that does not fit keeps its special tokens and its *end*: the last turn is what a decision
is about. Control-token text inside a transcript (a cell that holds `<|end|>`) stays ordinary text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentinel.errors import UserError
from sentinel.heads.lines import LineTokens

if TYPE_CHECKING:
    import pyarrow as pa
    from tokenizers import Tokenizer

FEW = 32


@dataclass(frozen=True)
class Specials:
    """Ids around a text (`[CLS]` … `[SEP]` for BERT-like encoders) and the id that pads."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int


@dataclass(frozen=True)
class Tokenized:
    """n texts as one flat array: row i is `ids[starts[i]:starts[i + 1]]`, without specials."""

    ids: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: np.ndarray) -> Tokenized:
        """The rows of an index array, in its order."""
        parts = [self.ids[self.starts[i] : self.starts[i + 1]] for i in rows]
        sizes = [p.size for p in parts]
        ids = np.concatenate(parts) if parts else self.ids[:0]
        return Tokenized(ids, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def lengths(self, specials: Specials, window: int) -> np.ndarray:
        """(n,) tokens that the encoder reads per row, specials included."""
        return np.minimum(np.diff(self.starts) + len(specials.before) + len(specials.after), window)

    def truncated(self, specials: Specials, window: int) -> np.ndarray:
        """(n,) whether a row loses its beginning."""
        return np.diff(self.starts) + len(specials.before) + len(specials.after) > window

    def batch(
        self, rows: np.ndarray, specials: Specials, window: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(b, L) int64 ids, padded on the right to the longest row, and the (b, L) bool mask."""
        lengths = self.lengths(specials, window)[rows]
        width = int(lengths.max())
        ids = np.full((len(rows), width), specials.pad, dtype=np.int64)
        before, after = len(specials.before), len(specials.after)
        for at, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            room = int(length) - before - after
            end = self.starts[row + 1]
            ids[at, :before] = specials.before
            ids[at, before : before + room] = self.ids[end - room : end]
            ids[at, before + room : length] = specials.after
        return ids, np.arange(width) < lengths[:, None]

    def to_table(self) -> pa.Table:
        """As an Arrow table of one column `ids`, a row per text."""
        import pyarrow as pa

        offsets = pa.array(self.starts, pa.int64())
        ids = pa.LargeListArray.from_arrays(offsets, pa.array(self.ids, pa.int32()))
        return pa.table({"ids": ids})

    @classmethod
    def from_table(cls, table: pa.Table) -> Tokenized:
        """Inverse of `to_table`. Raises ValueError for another table."""
        import pyarrow as pa

        if table.schema.names != ["ids"] or table.schema.types != [pa.large_list(pa.int32())]:
            raise ValueError(f"not a table of token ids: {table.schema}")
        column = table.column("ids").combine_chunks()
        sizes = column.value_lengths().to_numpy(zero_copy_only=False)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(column.flatten().to_numpy(zero_copy_only=False).astype(np.int32), starts)


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokenized:
    """Token ids of the texts, without specials and without truncation.

    Equal texts (t = 0 of a question, for every agent) are tokenised once, and so is every line that
    the prefixes of an episode share (`sentinel.heads.lines`).
    """
    # For a few texts, asking the tokenizer about its lines would take longer than reading them.
    return flatten(LineTokens(tokenizer, False if len(texts) < FEW else None).read(texts))


def flatten(rows: Sequence[np.ndarray]) -> Tokenized:
    """Rows of ids as one flat array."""
    ids = np.concatenate(rows) if len(rows) else np.zeros(0)
    starts = np.concatenate([[0], np.cumsum([row.size for row in rows])])
    return Tokenized(ids.astype(np.int32), starts.astype(np.int64))


def open_tokenizer(folder: Path) -> tuple[Tokenizer, Specials]:
    """The fast tokenizer of a folder (`tokenizer.json`) and its specials.

    Raises UserError when there is none, or when it has no padding token.
    """
    from tokenizers import Tokenizer

    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise UserError(f"no tokenizer.json in {folder}", "name an encoder with a fast tokenizer")
    from sentinel.heads.encoders import padding_token

    read = Tokenizer.from_file(str(path))
    return with_specials(read, str(folder), padding_token(Path(folder)))


def with_specials(
    tokenizer: Tokenizer, name: str, padding: str | None = None
) -> tuple[Tokenizer, Specials]:
    """A tokenizer set up for heads (control tokens in text stay text) and its specials.

    `padding`: the padding token, where the encoder's files name it; else a usual one.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    probe = tokenizer.encode("a").ids
    body = tokenizer.encode("a", add_special_tokens=False).ids
    at = next((i for i in range(len(probe)) if probe[i : i + len(body)] == body), 0)
    before, after = tuple(probe[:at]), tuple(probe[at + len(body) :])
    if not before and not after:  # no template: BERT's own, where the vocabulary has it
        cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
        before = () if cls is None else (cls,)
        after = () if sep is None else (sep,)
    usual = ("<|pad|>", "[PAD]", "<pad>", "<|padding|>")
    pads = [tokenizer.token_to_id(t) for t in ([padding] if padding else usual)]
    pad = next((p for p in pads if p is not None), None)
    if pad is None:
        raise UserError(f"the tokenizer of {name} has no padding token", "name another encoder")
    tokenizer.encode_special_tokens = True
    return tokenizer, Specials(before, after, pad)
