"""The search equals brute force on random tables; its laws; its memory."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import random_rounds
import reference_cascade as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.cascade import (
    GRID,
    Searched,
    Thresholds,
    baselines,
    choose,
    fit_gates,
    requirement,
    search,
)
from sentinel.cascade.policy import chosen
from sentinel.cascade.table import Rounds
from sentinel.errors import UserError

GRIDS = (
    ("0.5", "0.8", "1"),
    ("0.3", "0.6"),
    ("0.2", "0.4", "0.6", "0.8", "1"),
    ("1",),
    ("0.9", "0.95", "1"),
)


def gates_agree(
    cal: list[dict[str, object]], G: int, grid: tuple[str, ...], kind: str, after: bool
):
    rounds = random_rounds.as_rounds(cal, G, after)
    found = fit_gates(rounds, grid, "0.2", kind)
    expected = reference.thresholds(cal, G, grid, "0.2", kind, after)
    assert found.values.tolist() == expected
    return found, expected


@pytest.mark.parametrize("seed", range(60))
def test_equals_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    G = int(rng.integers(1, 5))
    grid = GRIDS[seed % len(GRIDS)]
    after, kind = bool(rng.random() < 0.3), str(rng.choice(["clopper-pearson", "conformal"]))
    # Calibration of any size: gates with no success, one, or many.
    cal = random_rounds.episodes(rng, int(rng.choice([0, 1, 5, 25])), G)
    val = random_rounds.episodes(rng, int(rng.choice([0, 1, 12, 30])), G)
    gates, table = gates_agree(cal, G, grid, kind, after)
    rounds = random_rounds.as_rounds(val, G, after)
    found = search(rounds, gates)
    expected = reference.search(val, table, after)
    assert {
        found.vector(i): (int(k), int(s))
        for i, (k, s) in enumerate(zip(found.kept, found.saved, strict=True))
    } == expected
    n = rounds.successes
    assert found.successes == n
    masks = (
        (None, lambda v: True),
        (baselines.uniform(found), lambda v: len(set(v)) == 1),
        (
            baselines.single_gate(found),
            lambda v: grid[-1] == "1" and sum(b != len(grid) - 1 for b in v) <= 1,
        ),
    )
    for target in ("0.3", "0.5", "0.8", "0.9", "0.95", "0.98"):
        asked = requirement(target, "0.02")
        for mask, allowed in masks:
            choice = choose(found, asked.successes(n), mask)
            best = reference.choose(expected, n, asked.recall, allowed)
            assert (None if choice.index is None else found.vector(choice.index)) == best


def test_equals_brute_force_on_all_46_656_budgets():
    rng = np.random.default_rng(5)
    cal = random_rounds.episodes(rng, 400, 6, levels=40)
    val = random_rounds.episodes(rng, 12, 6, levels=40)
    gates = fit_gates(random_rounds.as_rounds(cal, 6), GRID)
    found = search(random_rounds.as_rounds(val, 6), gates)
    expected = reference.search(val, gates.values.tolist())
    assert list(zip(found.kept.tolist(), found.saved.tolist(), strict=True)) == list(
        expected.values()
    )


def test_thresholds_that_coincide_and_scores_on_them():
    cal = [{"T": 1, "success": True, "scores": [1.0], "costs": [1], "total": 1} for _ in range(80)]
    gates = fit_gates(random_rounds.as_rounds(cal, 1), GRID)
    assert gates.values[0].tolist() == [1.0, 1.0, 1.0, np.inf, np.inf, np.inf]
    val = [
        {"T": 2, "success": True, "scores": [s], "costs": [1, 3], "total": 3}
        for s in (1.0, np.nextafter(1.0, 2), float("nan"))
    ]
    found = search(random_rounds.as_rounds(val, 1), gates)
    # A score equal to the threshold survives; NaN passes; the next float aborts.
    assert found.kept.tolist() == [2, 2, 2, 3, 3, 3]
    assert found.saved.tolist() == [2, 2, 2, 0, 0, 0]


def test_ties_go_to_more_kept_then_to_the_larger_budget():
    found = Searched(
        ("0.5", "0.8", "1"),
        2,
        kept=np.array([5, 6, 6, 6, 9, 9, 6, 9, 9]),
        saved=np.array([9, 9, 9, 9, 7, 7, 9, 7, 7]),
        successes=10,
        cost=20,
    )
    choice = choose(found, 5)
    assert choice.index is not None
    assert found.budget(choice.index) == ("1", "0.5")
    assert found.vector(choose(found, 9).index or 0) == (2, 2)
    assert choose(found, 10).index is None


def test_exact_arithmetic_of_the_requirement():
    assert not 41 / 50 >= 0.80 + 0.02
    assert requirement("0.80", "0.02").successes(50) == 41
    assert requirement("0.9", "0.02").recall == Fraction("0.92")


@pytest.mark.parametrize(
    ("target", "margin", "used", "reduced"),
    [
        ("0.98", "0.02", "0.01", True),
        ("0.99", "0.02", "0.005", True),
        ("0.98", "0.004", "0.004", False),
        ("0.95", "0.02", "0.02", False),
        ("0.98", "0.01", "0.01", False),
    ],
)
def test_margin_of_strict_targets(target: str, margin: str, used: str, reduced: bool):
    found = requirement(target, margin)
    assert (found.margin, found.reduced) == (Fraction(used), reduced)
    assert found.reason is None


def test_a_margin_that_cannot_serve():
    for target, margin in (("0.985", "0.02"), ("0.95", "0.06")):
        found = requirement(target, margin)
        assert found.reason is not None
        assert "margin cannot serve" in found.reason
    assert requirement("0.95", "0.05").reason is None


def test_31_single_gates_and_6_uniform_vectors():
    rounds = random_rounds.as_rounds(random_rounds.episodes(np.random.default_rng(0), 9, 6), 6)
    found = search(rounds, fit_gates(rounds))
    single = [found.budget(int(i)) for i in baselines.single_gate(found)]
    assert len(single) == len(set(single)) == 31
    assert all(sum(t != "1" for t in budget) <= 1 for budget in single)
    uniform = [found.budget(int(i)) for i in baselines.uniform(found)]
    assert uniform == [(t,) * 6 for t in GRID]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_laws(seed: int, G: int):
    rng = np.random.default_rng(seed)
    grid = ("0.2", "0.5", "0.8", "1")
    cal = random_rounds.as_rounds(random_rounds.episodes(rng, 30, G), G)
    val = random_rounds.as_rounds(random_rounds.episodes(rng, 30, G), G)
    gates = fit_gates(cal, grid, "0.2")
    assert (gates.values[:, 1:] >= gates.values[:, :-1]).all()
    found = search(val, gates)
    kept, saved = found.kept.reshape((4,) * G), found.saved.reshape((4,) * G)
    for axis in range(G):
        # A larger budget keeps more successes and saves less: survivors are nested.
        assert (np.diff(kept, axis=axis) >= 0).all()
        assert (np.diff(saved, axis=axis) <= 0).all()
    assert (kept[(-1,) * G], saved[(-1,) * G]) == (val.successes, 0)
    assert 0 <= saved.min() <= saved.max() <= val.cost.sum()


def test_costs_beyond_float64_stay_exact():
    big = 2**55 + 1
    rounds = Rounds.of(
        np.array([[1.0], [1.0], [0.0]]),
        np.array([[0], [1], [0]]),
        np.array([big, 3, 5]),
        np.array([2, 2, 2]),
        np.array([False, False, True]),
    )
    found = search(rounds, Thresholds.given(["0.5", "1"], [[0.5, None]]))
    assert found.saved.tolist() == [big + 2, 0]


def test_memory_is_refused_before_it_is_allocated():
    rounds = random_rounds.as_rounds(random_rounds.episodes(np.random.default_rng(0), 3, 8), 8)
    grid = tuple(f"{b / 100:g}" for b in range(40, 101))
    gates = fit_gates(rounds, grid)
    with pytest.raises(UserError, match=r"191,707,312,997,281 candidates, 6,134\.6 TB"):
        search(rounds, gates)
    with pytest.raises(UserError, match="candidates"):
        search(rounds.take(np.arange(0)), gates, limit=10)


def test_a_table_that_falls_is_refused():
    with pytest.raises(UserError, match=r"gate 2 fall from 2 at budget 0\.9 to 1 at 1"):
        Thresholds.given(["0.9", "1"], [[0.0, None], [2.0, 1.0]])
    with pytest.raises(UserError, match="NaN"):
        Thresholds.given(["0.9", "1"], [[0.0, float("nan")]])
    with pytest.raises(UserError, match="one row per gate"):
        Thresholds.given(["0.9", "1"], [[0.0]])
    with pytest.raises(UserError, match="fall"):
        Thresholds.given(["0.9", "1"], [[None, 1.0]])
    equal = Thresholds.given(["0.9", "1"], [[1.0, 1.0]])
    assert chosen(equal, [1]) == (1.0,)
