"""Logits that a head has given, kept by what it read: later passes read new prefixes only.

For a frozen head whose pool grows, and for a scoring pass that was killed. A file holds one head's
logits: a line of JSON that names the head, then records of 16 bytes (a hash of the token ids) and
the float64 logits, appended and flushed. A record cut short by a kill costs itself alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.heads.score import Prepared, deduplicate, prepare, read_batches
from sentinel.heads.tokens import Specials, Tokenized

log = logging.getLogger(__name__)
FORMAT = 1
FLUSH_TOKENS = 1_000_000
"""Tokens between two writes: what a kill can cost."""


class ScoreStore:
    """The kept logits of one head; `head` (see `head_key`) names it, `outputs` is how many it has.

    Raises nothing for a file of another head or none at all: it begins anew, and says so.
    """

    def __init__(self, path: Path, head: str, outputs: int) -> None:
        self.path = Path(path)
        self.outputs = outputs
        self._record = np.dtype([("key", "V16"), ("logits", "<f8", (outputs,))])
        self._header = json.dumps({"format": FORMAT, "head": head, "outputs": outputs}) + "\n"
        self._known = self._read()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: bytes) -> bool:
        return key in self._known

    def logits(self, keys: list[bytes]) -> np.ndarray:
        """(n, outputs) logits of known keys."""
        out = np.zeros((len(keys), self.outputs))
        for at, key in enumerate(keys):
            out[at] = self._known[key]
        return out

    def add(self, keys: list[bytes], logits: np.ndarray) -> None:
        """Keep (n, outputs) logits, in memory and in the file."""
        rows = np.zeros(len(keys), dtype=self._record)
        rows["key"], rows["logits"] = [np.void(key) for key in keys], logits
        with self.path.open("ab") as file:
            file.write(rows.tobytes())
            file.flush()
        self._known.update(zip(keys, np.asarray(logits, dtype=np.float64), strict=True))

    def _read(self) -> dict[bytes, np.ndarray]:
        header = self._header.encode("ascii")
        data = self.path.read_bytes() if self.path.exists() else b""
        if not data.startswith(header):
            if data:
                log.warning("scores in %s are of another head: begun anew", self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(header)
            return {}
        size = self._record.itemsize
        whole = (len(data) - len(header)) // size * size
        if len(header) + whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(header) + whole)
        rows = np.frombuffer(data, dtype=self._record, count=whole // size, offset=len(header))
        return {row["key"].tobytes(): row["logits"].copy() for row in rows}


def head_key(model: Any, specials: Specials, window: int) -> str:
    """A hash of all that a logit depends on beside the ids: weights, pooling, specials, window."""
    digest = hashlib.sha256()
    encoder = json.dumps(model.encoder.config.to_dict(), sort_keys=True, default=str)
    settings = [specials.before, specials.after, specials.pad, window, model.pooling, encoder]
    digest.update(json.dumps(settings).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Pass:
    """What a pass over kept scores gave and did.

    `logits`: (n, outputs) of each head, in their order. Of `distinct` prefixes `new` were unknown
    to some head; they were read in `batches`.
    """

    logits: tuple[np.ndarray, ...]
    distinct: int
    new: int
    batches: int


def score_new(
    model: Any,
    tokens: Tokenized,
    specials: Specials,
    window: int,
    store: ScoreStore,
    *,
    device: str = "cpu",
    flush_tokens: int = FLUSH_TOKENS,
) -> np.ndarray:
    """(n, outputs) float64 logits; only rows that the store does not know go through the head.

    With an empty store the batches, and so the logits, are those of `score_tokens` to the bit;
    otherwise they agree to 2e-5. Raises HeadFailure for a logit that is not finite.
    """
    how: dict[str, Any] = {"device": device, "flush_tokens": flush_tokens}
    return score_new_heads([model], tokens, specials, window, [store], **how).logits[0]


def score_new_heads(
    models: Sequence[Any],
    tokens: Tokenized,
    specials: Specials,
    window: int,
    stores: Sequence[ScoreStore],
    *,
    device: str = "cpu",
    flush_tokens: int = FLUSH_TOKENS,
) -> Pass:
    """`score_new` of several heads that read alike, a store each: batched once for all.

    Where the heads know different prefixes (a kill came between their stores), each reads what it
    lacks.
    """
    distinct, index = deduplicate(tokens)
    keys = [
        hashlib.blake2b(
            distinct.ids[distinct.starts[i] : distinct.starts[i + 1]].tobytes(), digest_size=16
        ).digest()
        for i in range(len(distinct))
    ]
    lacks = np.array([[key not in store for store in stores] for key in keys], dtype=bool)
    lacks = lacks.reshape(len(keys), len(stores))
    batches_read = 0
    for pattern in np.unique(lacks[lacks.any(axis=1)], axis=0):
        new = np.flatnonzero((lacks == pattern).all(axis=1))
        readers = [(m, s) for m, s, wants in zip(models, stores, pattern, strict=True) if wants]
        prepared = prepare(distinct.take(new), specials, window)
        batches_read += len(prepared.batches)
        for batches in _portions(prepared, flush_tokens):
            logits = read_batches([m for m, _ in readers], prepared, batches, device=device)
            rows = new[np.concatenate(batches)]
            ends = np.cumsum([store.outputs for _, store in readers])[:-1]
            for (_, store), part in zip(readers, np.split(logits, ends, axis=1), strict=True):
                store.add([keys[i] for i in rows], part)
    logits_of = tuple(store.logits(keys)[index] for store in stores)
    return Pass(logits_of, len(keys), int(lacks.any(axis=1).sum()), batches_read)


def _portions(prepared: Prepared, most: int) -> list[list[np.ndarray]]:
    """The batches, in order, in groups of at most `most` tokens (at least one batch)."""
    lengths = prepared.distinct.lengths(prepared.specials, prepared.window)
    found: list[list[np.ndarray]] = []
    tokens = 0
    for rows in prepared.batches:
        size = int(lengths[rows].sum())
        if not found or tokens + size > most:
            found.append([])
            tokens = 0
        found[-1].append(rows)
        tokens += size
    return found
