"""The decision layer agrees with the brute-force reference, to the tie."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reference_decide import SYSTEMS, Reference

from sentinel.decide import DecideConfig, Policy, apply, evaluate, fit, from_table
from sentinel.decide.play import EXIT_NAMES
from sentinel.tables import PREFIX_SCORES

LAMBDAS = ("0", "0.1", "0.5", "1", "2.5", "4", "9")
BUDGETS = ("0", "0.005", "0.2", "0.34", "0.5")
TYPES = {name: column.type for name, column in PREFIX_SCORES.columns.items()}


def random_rows(seed: int) -> list[dict[str, Any]]:
    """A small table with ties, missing scores, missing verdicts, one-class and empty pools."""
    rng = np.random.default_rng(seed)
    grid = np.append(rng.random(int(rng.integers(2, 9))), [0.0, 1.0])
    other = np.append(rng.random(int(rng.integers(2, 7))), grid)
    missing, unanswerable, right = (
        rng.choice([0, 0, 0.15, 1], p=[0.4, 0.2, 0.35, 0.05]),
        *(rng.choice([0.0, 0.3, 0.6, 1.0], 2, p=[0.1, 0.4, 0.4, 0.1])),
    )
    answers = rng.choice([0.0, 0.7, 1.0], p=[0.1, 0.6, 0.3])
    rows = []
    for pool in ("train", "calibration", "heldout"):
        for i in range(int(rng.choice([0, 1, 3, 8, 14], p=[0.05, 0.05, 0.1, 0.4, 0.4]))):
            T = int(rng.integers(1, 5))
            answerable, answered = bool(rng.random() >= unanswerable), bool(rng.random() < answers)
            correct = None if rng.random() < 0.05 else bool(rng.random() < right)
            scores = grid if pool == "calibration" or rng.random() < 0.5 else other
            for t in range(T + 1):
                p = [None if rng.random() < missing else float(rng.choice(scores)) for _ in "ac"]
                rows.append(
                    {
                        "episode_id": f"{pool}{i:02}",
                        "group": f"{pool}{i % 4}",
                        "pool": pool,
                        "t": t,
                        "T": T,
                        "answerable": answerable,
                        "answered": answered,
                        "correct": correct if answered else None,
                        "p_answerable": p[0],
                        "p_correct": p[1],
                    }
                )
    rng.shuffle(rows)
    return rows


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a typed table."""
    names = [name for name in PREFIX_SCORES.columns if rows and name in rows[0]]
    return pa.table({n: pa.array([r[n] for r in rows], TYPES[n]) for n in names})


QUICK, ALL = 5, 40
SLOW = [pytest.param(block, marks=pytest.mark.slow) for block in range(QUICK, ALL)]


@pytest.mark.parametrize("block", [*range(QUICK), *SLOW])
def test_equals_brute_force(block: int) -> None:
    """θ, every s_λ, RS, savings, and every decision on the held-out pool."""
    compared = 0
    for seed in range(20 * block, 20 * block + 20):
        rows = random_rows(seed)
        if not rows:
            continue
        budget = BUDGETS[seed % len(BUDGETS)]
        config = DecideConfig.of(LAMBDAS, budget, resamples=5)
        columns = from_table(as_table(rows))
        policy = fit(columns, config)
        policy = Policy.from_json(policy.to_json())
        reference = Reference(rows, budget)
        assert policy.gate.theta == reference.theta, seed
        heldout = columns.in_pool("heldout")
        pool = [e for e in reference.all if e.pool == "heldout" and e.labelled]
        assert list(heldout.episode) == [e.id for e in pool]
        ladder = {
            (row["system"], row["lam"]): row
            for row in evaluate(policy, columns, config).summary["ladder"]
        }
        for lam in LAMBDAS:
            exact = Fraction(lam)
            s, total, saved = reference.stop(exact)
            found = policy.stops[lam]
            where = (seed, lam)
            assert found.s == (s if isinstance(s, str) else float(s)), where
            assert found.good - exact * found.bad == total, where
            assert found.saved == saved, where
            for system in SYSTEMS:
                decisions = apply(policy, heldout, lam, system)
                for i, e in enumerate(pool):
                    expected = reference.play(e, system, exact, s)
                    by = EXIT_NAMES[decisions.exit_by[i]]
                    got = (decisions.exit_time[i], by, bool(decisions.delivered[i]))
                    assert got == expected, (*where, system, e.id)
                total_rs, steps = reference.score(pool, system, exact, s)
                row = ladder[system, lam]
                assert row["rs"] == (float(total_rs / len(pool)) if pool else None), where
                assert row["steps"]["saved"] == steps, where
                compared += 1
    assert compared
