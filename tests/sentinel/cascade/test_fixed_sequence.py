"""The chain follows its definition; acceptance stops for good; the full search corrects."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import random_rounds
import reference_cascade as reference

from sentinel.cascade import accept, chain, fit_gates, play, search
from sentinel.cascade.fixed_sequence import (
    chain_budget,
    chain_thresholds,
    full_search,
    hypotheses,
)

GRIDS = (("0.5", "0.8", "1"), ("0.2", "0.4", "0.6", "0.8", "1"), ("0.3", "0.6"))


@pytest.mark.parametrize("seed", range(60))
def test_chain_equals_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    G, grid = int(rng.integers(1, 5)), GRIDS[seed % 3]
    cal = random_rounds.episodes(rng, int(rng.choice([0, 6, 30])), G)
    rounds = random_rounds.as_rounds(cal, G)
    gates = fit_gates(rounds, grid, "0.2")
    table = reference.thresholds(cal, G, grid, "0.2")
    if grid[-1] != "1":
        table = [[*row, float("inf")] for row in table]
    links = chain(rounds, gates)
    expected = reference.chain(cal, table)
    taus = [[row[b] for row, b in zip(table, vector, strict=True)] for vector in expected]
    assert [
        [float("inf") if t is None else t for t in chain_thresholds(gates, link)] for link in links
    ] == taus
    if grid[-1] == "1":
        assert [link.vector for link in links] == expected
    assert len(links) <= G * (len(table[0]) - 1) + 1
    for link in links:
        assert len(chain_budget(gates, link)) == G

    # The aborted sets are nested, and the counts are those of playing.
    before = np.zeros(len(rounds), dtype=bool)
    for link in links:
        played = play(chain_thresholds(gates, link), rounds)
        assert (before <= ~played.survives).all()
        before = ~played.survives
        assert int(played.saved.sum()) == link.saved
        assert int((before & rounds.success).sum()) == link.lost

    test = random_rounds.episodes(rng, 60, G, share=0.8)
    testing = random_rounds.as_rounds(test, G)
    kept = [reference.count(test, t)[0] for t in taus]
    for target in ("0.5", "0.9"):
        found = accept(links, gates, testing, target, Fraction("0.05"))
        assert found.position == reference.accept(kept, testing.successes, target, "0.05")
        assert list(found.kept) == kept[: len(found.kept)]
        assert (found.reason is None) == (found.position > 0)


def made(scores: list[float], success: list[bool]) -> list[dict[str, object]]:
    return [
        {"T": 2, "success": y, "scores": [s], "costs": [1, 11], "total": 11}
        for s, y in zip(scores, success, strict=True)
    ]


def test_testing_ends_at_the_first_failure():
    cal = made([0, 1, 2, 3, 2.5, 4], [True] * 4 + [False] * 2)
    rounds = random_rounds.as_rounds(cal, 1)
    gates = fit_gates(rounds, ("0.3", "0.5", "1"), "0.5")
    links = chain(rounds, gates)
    assert len(links) == 3
    testing = random_rounds.as_rounds(made([0.0] * 50 + [9.0] * 10, [True] * 60), 1)
    found = accept(links, gates, testing, "0.8", Fraction("0.05"))
    assert found.position == 0
    assert len(found.kept) == 2  # the no-op and the step that failed; none after it
    assert found.p_values[1] > 0.05


def test_too_few_successes_name_the_number():
    rounds = random_rounds.as_rounds(made([0, 1, 2, 5], [True] * 3 + [False]), 1)
    gates = fit_gates(rounds, ("0.3", "1"), "0.5")
    found = accept(chain(rounds, gates), gates, rounds, "0.95", Fraction("0.05"))
    assert (found.position, found.needs) == (0, 59)
    assert found.reason is not None
    assert "59" in found.reason


def test_full_search_divides_alpha_by_distinct_policies():
    rng = np.random.default_rng(3)
    cal = random_rounds.as_rounds(random_rounds.episodes(rng, 60, 3), 3)
    val = random_rounds.episodes(rng, 150, 3, share=0.9)
    grid = ("0.2", "0.5", "0.8", "1")
    gates = fit_gates(cal, grid)
    M = hypotheses(gates)
    distinct = {tuple(gates.values[r, b] for r, b in enumerate(v)) for v in np.ndindex((4,) * 3)}
    assert len(distinct) == M
    found = search(random_rounds.as_rounds(val, 3), gates)
    for target in ("0.3", "0.5", "0.8"):
        choice, facts = full_search(found, gates, target, Fraction("0.05"))
        assert facts["hypotheses"] == M
        n = found.successes
        ok = [
            (int(s), int(k), i)
            for i, (k, s) in enumerate(zip(found.kept, found.saved, strict=True))
            if reference.tail(int(k), n, Fraction(target)) <= Fraction("0.05") / M
        ]
        assert choice.index == (max(ok)[2] if ok else None)
    choice, facts = full_search(found, gates, "0.99", Fraction("0.05"))
    assert choice.index is None
    assert str(facts["needs"]) in (choice.reason or "")
