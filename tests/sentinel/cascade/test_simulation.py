"""What is promised holds under a known law, over many draws."""

from __future__ import annotations

import numpy as np
import pytest

from sentinel.cascade import play
from sentinel.cascade.simulation import METHODS, Law, clustered, simulate, tolerance

DRAWS = 2000


def test_closed_forms_equal_a_large_draw():
    law = Law()
    rounds = law.draw(200_000, np.random.default_rng(1))
    taus = [1.2, 1.5, None, 1.0, 1.3, 1.4]
    kept = play(taus, rounds).survives & rounds.success
    assert law.recall(taus) == pytest.approx(kept.sum() / rounds.successes, abs=0.006)
    for r, tau in enumerate(taus):
        alone = [tau if i == r else None for i in range(6)]
        alive = rounds.alive[:, r] & rounds.success
        share = (play(alone, rounds).survives & alive).sum() / alive.sum()
        assert law.survival(taus)[r] == pytest.approx(share, abs=0.01)
    assert law.recall([None] * 6) == pytest.approx(1)


def test_blocks_of_draws_give_the_same_rows():
    whole = simulate(Law(), range(6), tasks=150)
    parts = [simulate(Law(), block, tasks=150) for block in (range(2), range(2, 6))]
    for name in ("gate_broken", "deployed", "recall", "savings"):
        joined = np.concatenate([getattr(p, name) for p in parts])
        np.testing.assert_array_equal(getattr(whole, name), joined)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["0.9", "0.95"])
def test_simulated_guarantee(target: str, capsys: pytest.CaptureFixture[str]):
    found = simulate(Law(), range(DRAWS), target)
    most = tolerance(DRAWS)
    # An abstaining gate keeps everything, so it counts as kept.
    assert found.gate_broken.mean(axis=0).max() <= most
    rates = found.rates()
    for name in ("certificate", "fixed-sequence", "full-search"):
        assert rates[name]["violated"] <= most, name
    assert rates["fixed-sequence"]["deployed"] > 0.5
    with capsys.disabled():
        print(f"\ntarget {target}, {DRAWS} draws, bound {most:.4f}")
        print(f"  gates: at most {found.gate_broken.mean(axis=0).max():.4f} below their budget")
        for name in METHODS:
            print(f"  {name}: " + ", ".join(f"{k} {v:.3f}" for k, v in rates[name].items()))


@pytest.mark.slow
def test_clustered_rollouts_are_certified_too_often(capsys: pytest.CaptureFixture[str]):
    everything, one = clustered(Law(), DRAWS)
    assert one <= tolerance(DRAWS)
    with capsys.disabled():
        print(f"\n60 tasks × 4 rollouts: certified {everything:.3f}, one per task {one:.3f}")
