"""Log-probabilities in every form that vLLM gives them, and stop texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engines.generated import arrays, cut
from sentinel.engine import EngineError


@dataclass
class Flat:
    """vLLM's flat form, as far as it is read."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, entries: list[tuple[int, float]]) -> None:
        self.start_indices.append(len(self.token_ids))
        self.token_ids += [t for t, _ in entries]
        self.logprobs += [v for _, v in entries]
        self.end_indices.append(len(self.token_ids))


@dataclass
class Entry:
    logprob: float
    rank: int = 1


@st.composite
def positions(draw: st.DrawFn) -> list[tuple[int, dict[int, float]]]:
    """Per position the chosen id and a log-probability for each of its ids, the chosen included."""
    made = []
    values = st.one_of(st.floats(-50, 0, width=32), st.just(float("-inf")))
    for _ in range(draw(st.integers(0, 6))):
        ids = draw(st.lists(st.integers(0, 999), min_size=6, max_size=6, unique=True))
        made.append((draw(st.sampled_from(ids)), {i: draw(values) for i in ids}))
    return made


def top(row: dict[int, float]) -> list[int]:
    return sorted(row, key=lambda t: (-np.float32(row[t]), t))[:5]


@given(positions())
def test_every_form_gives_the_same_arrays(made: list[tuple[int, dict[int, float]]]) -> None:
    ids = [chosen for chosen, _ in made]
    flat, lean, mapped, numbers = Flat(), Flat(), [], []
    for chosen, row in made:
        best = top(row)
        # The chosen one first, then the five likeliest, which may hold it again.
        flat.add([(chosen, row[chosen]), *((t, row[t]) for t in best)])
        # k entries where the chosen one is among them, k + 1 where not, in any order.
        names = best if chosen in best else [*best, chosen]
        lean.add([(t, row[t]) for t in reversed(names)])
        mapped.append({t: Entry(row[t]) for t in names})
        numbers.append({t: row[t] for t in names})
    found = [arrays(ids, form) for form in (flat, lean, mapped, numbers)]
    for got in found:
        assert got.logprobs.shape == (len(ids),)
        assert got.top_ids.shape == got.top_logprobs.shape == (len(ids), 5)
        assert (got.logprobs.dtype, got.top_ids.dtype) == (np.float32, np.int32)
        for i, (chosen, row) in enumerate(made):
            assert got.logprobs[i] == np.float32(row[chosen])
            assert got.top_logprobs[i].tolist() == [np.float32(row[t]) for t in got.top_ids[i]]
            assert got.top_ids[i].tolist() == top(row)


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        [{1: -0.1, 2: -1.0}],
        [dict.fromkeys(range(10, 16), -1.0)],
        [{t: float("nan") for t in range(1, 7)}],
    ],
)
def test_what_is_missing_is_an_error(found: Any) -> None:
    with pytest.raises(EngineError):
        arrays([1], found)


def test_not_a_number_in_the_flat_form() -> None:
    flat = Flat()
    flat.add([(1, float("nan")), *((t, -1.0) for t in range(1, 6))])
    with pytest.raises(EngineError, match="NaN"):
        arrays([1], flat)


@given(st.text("abc;", max_size=20), st.lists(st.text("abc;", max_size=3), max_size=3))
def test_a_cut_is_where_a_stream_would_have_stopped(text: str, stop: list[str]) -> None:
    ids = [ord(c) for c in text]
    got, n, stopped = cut(lambda ids: "".join(map(chr, ids)), ids, stop)
    wanted = [s for s in stop if s]
    at = next((i for i in range(len(text) + 1) if any(s in text[:i] for s in wanted)), None)
    assert stopped == (at is not None)
    assert n == (len(text) if at is None else at)
    assert text.startswith(got)
    assert not any(s in got for s in wanted)
    assert (got == text) if at is None else any(text[len(got) :].startswith(s) for s in wanted)
