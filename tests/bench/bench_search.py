"""Budget search of all 46,656 candidates with savings, against one candidate at a time.

The baseline is the plain numpy version: for each candidate, play the gates over all episodes and
add up. At 20,000 episodes it is timed on a sample of its candidates and scaled, as each takes the
same time.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
from harness import Line, check_baseline, main, pairs_of, seconds, summary
from numpy.typing import NDArray

from sentinel.cascade import GRID, Rounds, Searched, Thresholds, fit_gates, search

GATES = 6
BASELINE_SECONDS = {500: 1.1, 20_000: 38.0}
BARS = {500: 100.0, 20_000: 2000.0}
SAMPLE = {500: None, 20_000: 1500}
"""Candidates the baseline is timed on; None: all."""
REPEAT = {500: 20, 20_000: 5}

Vectors = Sequence[tuple[int, ...]]


def make(episodes: int, seed: int) -> Rounds:
    """Seeded episodes of up to 20 rounds; failures are longer and score higher."""
    rng = np.random.default_rng(seed)
    success = rng.random(episodes) < 0.45
    T = np.where(success, rng.integers(1, 13, episodes), rng.integers(1, 21, episodes))
    cost = np.cumsum(rng.integers(100, 2000, (episodes, 20)), axis=1)
    score = rng.normal(size=(episodes, GATES)) + 1.5 * ~success[:, None]
    score[rng.random(score.shape) < 0.01] = np.nan
    total = cost[np.arange(episodes), T - 1]
    return Rounds.of(score, cost[:, :GATES], total, T, success)


def plain(
    rounds: Rounds, gates: Thresholds, vectors: Vectors
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(kept, saved) of each candidate, one at a time."""
    kept = np.empty(len(vectors), dtype=np.int64)
    saved = np.empty(len(vectors), dtype=np.int64)
    episode, gate = np.arange(len(rounds)), np.arange(GATES)
    for i, vector in enumerate(vectors):
        hit = rounds.score > gates.values[gate, vector]
        aborted, first = hit.any(axis=1), hit.argmax(axis=1)
        kept[i] = (rounds.success & ~aborted).sum()
        saved[i] = rounds.saved[episode, first][aborted].sum()
    return kept, saved


def equal(rounds: Rounds, gates: Thresholds, vectors: Vectors) -> None:
    """Raise unless the search equals the plain version on these candidates."""
    found: Searched = search(rounds, gates)
    at = [found.index(vector) for vector in vectors]
    kept, saved = plain(rounds, gates, vectors)
    np.testing.assert_array_equal(found.kept[at], kept)
    np.testing.assert_array_equal(found.saved[at], saved)


def bench(tiny: bool) -> Iterator[Line]:
    """Ratios at 500 and 20,000 episodes; --tiny compares some candidates and times one pair."""
    gates = fit_gates(make(2000, seed=1))
    everything = list(itertools.product(range(len(GRID)), repeat=GATES))
    for episodes in (60, 120) if tiny else (500, 20_000):
        rounds = make(episodes, seed=2)
        size = 200 if tiny else SAMPLE[episodes]
        picks = np.random.default_rng(3).permutation(len(everything))[:size]
        vectors = everything if size is None else [everything[int(i)] for i in picks]
        equal(rounds, gates, vectors)
        repeat = 1 if tiny else REPEAT[episodes]
        scale = len(everything) / len(vectors)

        def slow(rounds: Rounds = rounds, vectors: Vectors = vectors) -> None:
            plain(rounds, gates, vectors)

        def fast(rounds: Rounds = rounds, repeat: int = repeat) -> None:
            for _ in range(repeat):
                search(rounds, gates)

        pairs = pairs_of(slow, fast, 1 if tiny else 7)
        if not tiny:
            yield Line(f"search_plain_{episodes}", summary(a * scale for a, _ in pairs), "s")
            # Its own range is judged in CPU seconds: other work on the machine is not its fault.
            start = time.process_time()
            slow()
            took = (time.process_time() - start) * scale
            check_baseline(f"search_plain_{episodes}", took, BASELINE_SECONDS[episodes])
            yield Line(f"search_{episodes}", summary(1e3 * b / repeat for _, b in pairs), "ms")
        yield Line(
            f"search_speedup_{episodes}",
            summary(a * scale / (b / repeat) for a, b in pairs),
            at_least=None if tiny else BARS[episodes],
        )
    if not tiny:
        yield from growth(gates)


def growth(gates: Thresholds) -> Iterator[Line]:
    """Linear in episodes: time per episode at 80,000 over that at 20,000 (printed, no bar)."""
    small, large = make(20_000, seed=4), make(80_000, seed=4)
    ratios = []
    for _ in range(7):
        a = seconds(lambda: search(small, gates))
        ratios.append(seconds(lambda: search(large, gates)) / a / 4)
    yield Line("search_growth_per_episode", summary(ratios))


if __name__ == "__main__":
    sys.exit(main(__doc__, bench))
