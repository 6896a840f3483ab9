"""The costs that the paper and its methods name."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sentinel.cascade import planner
from sentinel.cascade.certificate import certify, recall_to_pass
from sentinel.errors import UserError

ALPHA = Fraction("0.05")


def test_table_of_costs():
    found = planner.plan(["0.9", "0.95", "0.98", "0.99"])
    rows = {row["target"]: row for row in found["targets"]}
    assert rows["0.9"]["lost"] == {"0": 29, "1": 46, "2": 61, "5": 103}
    assert rows["0.95"]["lost"] == {"0": 59, "1": 93, "2": 124, "5": 208}
    assert rows["0.98"]["lost"]["0"] == 149
    assert rows["0.99"]["lost"]["0"] == 299
    assert rows["0.9"]["power"] == {"0.02": 1365, "0.03": 593, "0.05": 203}
    assert rows["0.95"]["power"] == {"0.02": 694, "0.03": 286, "0.05": 59}


def test_114_successes_certify_up_to_0_974():
    best = planner.certifiable(114, ALPHA)
    assert best is not None
    assert round(best, 3) == 0.974
    assert certify(114, 114, "0.974", ALPHA).passed
    assert not certify(114, 114, "0.975", ALPHA).passed


def test_the_chance_to_pass_stays_above_the_power():
    from sentinel.cascade.bounds import smallest_rank, tail

    def power(n: int) -> float:
        k = smallest_rank(n, Fraction("0.9"), ALPHA, strict=True)
        return 0.0 if k is None else float(tail(k, n, 0.95))

    assert power(202) < 0.8
    assert all(power(n) >= 0.8 for n in range(203, 400))


@pytest.mark.parametrize("lost", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("target", ["0.5", "0.8", "0.9", "0.95"])
def test_numbers_needed_are_the_smallest(target: str, lost: int):
    n = planner.successes_needed(Fraction(target), ALPHA, lost)
    assert certify(n - lost, n, target, ALPHA).passed
    assert not certify(n - 1 - lost, n - 1, target, ALPHA).passed


def test_a_failed_certificate_names_what_it_needs():
    found = certify(50, 52, "0.95", ALPHA)
    assert not found.passed
    assert (found.needs, found.missing) == (124, 72)
    empty = certify(0, 0, "0.95", ALPHA)
    assert (empty.passed, empty.bound, empty.needs) == (False, None, 59)


def test_targets_on_one_sample_share_alpha():
    one, two = planner.plan(["0.95"]), planner.plan(["0.95"], shared=2)
    assert two["targets"][0]["lost"]["0"] > one["targets"][0]["lost"]["0"]


def test_recall_asked_for_before_a_certificate():
    p = recall_to_pass(203, "0.9", ALPHA)
    assert p is not None
    assert 0.9 < p < 0.951
    assert recall_to_pass(28, "0.9", ALPHA) is None


@pytest.mark.parametrize("target", ["0", "1", "1.2", "-0.5", "x", "nan"])
def test_targets_nobody_can_promise(target: str):
    with pytest.raises(UserError):
        planner.plan([target])


def test_other_bad_numbers():
    for bad in (
        lambda: planner.plan([]),
        lambda: planner.plan(["0.9", "0.90"]),
        lambda: planner.plan(["0.9"], lost=[-1]),
        lambda: planner.plan(["0.9"], alpha="0"),
        lambda: planner.plan(["0.9"], shared=0),
    ):
        with pytest.raises(UserError):
            bad()


def test_recall_at_or_below_the_target_never_passes_reliably():
    assert (
        planner.successes_for_power(Fraction("0.9"), Fraction("0.9"), ALPHA, Fraction("0.8"))
        is None
    )
