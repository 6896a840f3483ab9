"""From what an engine sampled to the fields of a Generation, the same for every local engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentinel.engine import TOP_K, EngineError


@dataclass(frozen=True, slots=True)
class Arrays:
    """`logprobs` (n,), `top_ids` (n, 5) and `top_logprobs` (n, 5) of n tokens."""

    logprobs: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray


def arrays(ids: Sequence[int], found: Any) -> Arrays:
    """Flat arrays from log-probabilities per position, in either of the forms that vLLM returns.

    `found` is flat (`token_ids`, `logprobs`, `start_indices`, `end_indices`: the chosen token, then
    the likeliest, which may hold it again) or one mapping per position from id to an object with
    `logprob` (or a number). A position has k or k + 1 entries, in any order: they are read by id. A
    log-probability of minus infinity stays one. Equal ones are ordered by id.

    Raises EngineError where a position is missing, or has neither its chosen token nor five others.
    """
    n = len(ids)
    fast = _regular(ids, found)
    if fast is not None:
        return fast
    made = Arrays(
        np.zeros(n, np.float32), np.zeros((n, TOP_K), np.int32), np.zeros((n, TOP_K), np.float32)
    )
    rows = list(_flat(found) if hasattr(found, "start_indices") else _mapped(found or ()))
    if len(rows) != n:
        raise EngineError(f"{n} tokens came with {len(rows)} positions of log-probabilities")
    for i, (chosen, row) in enumerate(zip(ids, rows, strict=True)):
        if chosen not in row or len(row) < TOP_K:
            raise EngineError(f"position {i} lacks its token or {TOP_K} alternatives: {row}")
        top = sorted(row, key=lambda t: (-row[t], t))[:TOP_K]
        made.logprobs[i] = row[chosen]
        made.top_ids[i] = top
        made.top_logprobs[i] = [row[t] for t in top]
    return _checked(made)


def _regular(ids: Sequence[int], found: Any) -> Arrays | None:
    """The usual case without a loop: flat, the chosen token and then exactly the likeliest five."""
    n, width = len(ids), TOP_K + 1
    if not hasattr(found, "start_indices") or len(found.start_indices) != n:
        return None
    if len(found.token_ids) != n * width or found.start_indices != list(range(0, n * width, width)):
        return None
    tokens = np.asarray(found.token_ids, np.int32).reshape(n, width)
    values = np.asarray(found.logprobs, np.float32).reshape(n, width)
    if not np.array_equal(tokens[:, 0], np.asarray(ids, np.int32)):
        return None
    order = np.lexsort((tokens[:, 1:], -values[:, 1:]), axis=-1)
    return _checked(
        Arrays(
            values[:, 0].copy(),
            np.take_along_axis(tokens[:, 1:], order, axis=1),
            np.take_along_axis(values[:, 1:], order, axis=1),
        )
    )


def _checked(made: Arrays) -> Arrays:
    if np.isnan(made.logprobs).any() or np.isnan(made.top_logprobs).any():
        raise EngineError("the model's log-probabilities are not numbers (NaN)")
    return made


def _flat(found: Any) -> Iterable[dict[int, float]]:
    for begin, end in zip(found.start_indices, found.end_indices, strict=True):
        yield dict(zip(found.token_ids[begin:end], found.logprobs[begin:end], strict=True))


def _mapped(found: Iterable[Mapping[int, Any]]) -> Iterable[dict[int, float]]:
    for position in found:
        yield {int(t): float(getattr(v, "logprob", v)) for t, v in position.items()}


def cut(
    decode: Callable[[Sequence[int]], str], ids: Sequence[int], stop: Sequence[str]
) -> tuple[str, int, bool]:
    """Text, how many ids it took, and whether a stop text ended it.

    The ids end with the one that completed a stop text; the text ends before it.

    >>> cut(lambda ids: "".join(map(chr, ids)), list(b"one;two"), [";"])
    ('one', 4, True)
    """
    stop = [s for s in stop if s]
    text = decode(ids)
    if not any(s in text for s in stop):
        return text, len(ids), False
    low, high = 1, len(ids)  # the fewest ids whose text holds a stop text
    while low < high:
        middle = (low + high) // 2
        part = decode(ids[:middle])
        low, high = (low, middle) if any(s in part for s in stop) else (middle + 1, high)
    text = decode(ids[:low])
    return text[: min(text.index(s) for s in stop if s in text)], low, True
