"""Whether two tables, and so two runs, are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.tables.schema import Table

NUMERIC_TOLERANCE = 1e-4
TIE_GAP = 1e-3
"""Top-2 gap in nats under which two engines may choose different tokens."""
HALF_ULP = 2.0**-10
"""Distance of neighbouring float16 numbers, relative: a last bit may round either way."""


def differences(spec: Table, left: pa.Table, right: pa.Table) -> list[str]:
    """Differences between two tables of one schema, one line each; empty means *equal*.

    Rows are matched by key. Where generated ids differ, the first difference must be a tie
    (top-2 gap below 1e-3) to be tolerated; it is still listed, with the word `tie`, and the rest of
    that turn and episode is not compared further.
    """
    name = spec.name
    left, right = spec.sort(spec.check(left)), spec.sort(spec.check(right))
    lkeys, rkeys = _keys(spec, left), _keys(spec, right)
    if lkeys != rkeys:
        only_left, only_right = sorted(set(lkeys) - set(rkeys)), sorted(set(rkeys) - set(lkeys))
        lines = [f"{name}: only left: {k}" for k in only_left[:20]]
        lines += [f"{name}: only right: {k}" for k in only_right[:20]]
        return lines or [f"{name}: repeated keys"]
    ties = _ties(left, right, lkeys) if name == "turns" else {}
    skipped = {key[:3] for key in ties}
    tops: dict[tuple[Any, ...], Any] = {}
    if name == "turns":
        tops = dict(zip(lkeys, left.column("top_logprobs").to_pylist(), strict=True))
    lines = [f"turns: tie at {'/'.join(map(str, key))}: token {at}" for key, at in ties.items()]
    for column, spec_column in spec.columns.items():
        if spec_column.kind == "volatile":
            continue
        lvalues, rvalues = left.column(column), right.column(column)
        if lvalues.equals(rvalues):
            continue
        pairs = zip(lkeys, lvalues.to_pylist(), rvalues.to_pylist(), strict=True)
        for key, a, b in pairs:
            if key[:3] in skipped or _same(a, b, spec_column.kind):
                continue
            if spec_column.kind == "ranked" and _same_ranks(a, b, tops.get(key)):
                continue
            lines.append(f"{name}.{column} at {'/'.join(map(str, key))}: {a!r:.80} != {b!r:.80}")
    return lines


def _keys(spec: Table, table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(n).to_pylist() for n in spec.key), strict=True))


def _same(a: Any, b: Any, kind: str) -> bool:
    if kind not in ("numeric", "half") or a is None or b is None:
        return bool(a == b)
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return x.shape == y.shape and bool(
        np.allclose(
            x,
            y,
            rtol=HALF_ULP if kind == "half" else 0.0,
            atol=NUMERIC_TOLERANCE,
            equal_nan=True,
        )
    )


def _same_ranks(a: Any, b: Any, logprobs: Any) -> bool:
    """Whether two lists of top ids differ only where the order hangs on less than a tie's gap.

    The last of the five may have lost its place to a sixth that nobody recorded; that its
    log-probability agrees is checked by its own column. That column needs no leave for ties: the
    k-th largest log-probability moves no more than the log-probabilities do, whoever holds it.
    """
    if a is None or b is None or logprobs is None or len(a) != len(b):
        return False
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        rank = i % 5
        near_previous = rank > 0 and logprobs[i - 1] - logprobs[i] < TIE_GAP
        near_next = rank == 4 or logprobs[i] - logprobs[i + 1] < TIE_GAP
        if x != y and not near_previous and not near_next:
            return False
    return True


def _ties(
    left: pa.Table, right: pa.Table, keys: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], int]:
    """Turn key → position of a tolerated first difference in the generated ids."""
    found: dict[tuple[Any, ...], int] = {}
    columns = zip(
        keys,
        left.column("generated_ids").to_pylist(),
        right.column("generated_ids").to_pylist(),
        left.column("top_logprobs").to_pylist(),
        strict=True,
    )
    for key, a, b, tops in columns:
        if a == b or a is None or b is None or any(k[:3] == key[:3] for k in found):
            continue
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if at is not None and tops and tops[5 * at] - tops[5 * at + 1] < TIE_GAP:
            found[key] = at
    return found
