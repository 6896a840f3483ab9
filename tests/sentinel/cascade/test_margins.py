"""The margin sweep: same draws, other δ; and the simulation as rows."""

from __future__ import annotations

import made_cascade
import numpy as np
import pytest
import random_rounds

from sentinel.cascade import CascadeConfig, draw
from sentinel.cascade.margins import MARGINS, margin_rows, margin_summary, with_margin
from sentinel.cascade.simulated import simulated_rows
from sentinel.cascade.simulation import METHODS, Law, clustered, simulate


@pytest.mark.parametrize("seed", range(8))
def test_the_margin_in_use_gives_the_draws_own_policy(seed: int):
    rng = np.random.default_rng(seed)
    rounds = random_rounds.as_rounds(random_rounds.episodes(rng, 150, 3), 3)
    config = CascadeConfig.of(["0.8", "0.9", "0.99"], "paper", gates=3)
    found = draw(rounds, config, seed)
    rows = margin_rows(found, with_margin(config.margin))
    for target in found.targets:
        mine = [r for r in rows if r["target"] == target.target]
        (row,) = (r for r in mine if r["margin"] == "0.02")
        for key in ("recall", "savings", "successes", "kept"):
            assert row[key] == target.test[key]
        assert row["no_op"] == target.policy.aborts_nothing
        assert row["margin_used"] == float(target.requirement.margin)


def test_a_margin_beyond_the_target_aborts_nothing_and_says_so():
    rounds = random_rounds.as_rounds(random_rounds.episodes(np.random.default_rng(1), 200, 3), 3)
    found = draw(rounds, CascadeConfig.of(["0.97"], "paper", gates=3), 0)
    row = margin_rows(found, ["0.05"])[0]
    assert row["no_op"]
    assert row["savings"] == 0
    assert "cannot serve" in row["reason"]


def test_summary_counts_what_it_averages():
    _, rows = made_cascade.paper()
    for line in margin_summary(rows):
        keys = ("cell", "target", "margin")
        mine = [r for r in rows if all(r[k] == line[k] for k in keys)]
        assert line["seeds"] == len(mine) == 3
        assert line["recall_mean"] == pytest.approx(np.mean([r["recall"] for r in mine]))
        assert line["savings_sd"] == pytest.approx(np.std([r["savings"] for r in mine], ddof=1))
        assert line["below"] == sum(r["recall"] < float(r["target"]) for r in mine)


def test_margins_stand_once_and_ascend():
    assert with_margin("0.02") == MARGINS
    assert with_margin("0.020") == MARGINS
    assert with_margin("0.07")[-1] == "0.07"


def test_simulated_rows_are_the_simulations_rates():
    found = simulated_rows(["0.9"], 4, tasks=80)
    direct = simulate(Law(), range(4), "0.9", tasks=80)
    rates = direct.rates()
    assert [r["method"] for r in found["methods"]] == list(METHODS)
    for row in found["methods"]:
        assert {k: row[k] for k in rates[row["method"]]} == rates[row["method"]]
        assert row["promises"] is (row["method"] != "margin")
    below = [r["below"] for r in found["gates"]]
    np.testing.assert_array_equal(below, direct.gate_broken.mean(axis=0).ravel())
    everything, one = clustered(Law(), 4, "0.9")
    assert [r["certified"] for r in found["clustered"]] == [everything, one]
