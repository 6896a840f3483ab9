"""The simulation's results as flat rows: for the report, and for anyone's own plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentinel.cascade.gates import GRID
from sentinel.cascade.simulation import METHODS, Law, clustered, simulate, tolerance

ALPHA = "0.05"
CLUSTERED = (60, 4)
"""Tasks and rollouts per task of the clustered draws."""


def simulated_rows(
    targets: Sequence[str],
    draws: int,
    *,
    seed: int = 0,
    tasks: int = 400,
    margin: str = "0.02",
    law: Law | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Under the known law, one episode per task, each target simulated with `draws` draws.

    `methods`: per target and method the share of draws in which a policy is deployed **and** its
    true recall is below the target (`violated`), the share deployed, and the mean savings.
    `gates`: per gate and budget the share of draws whose true survival is below the budget; a gate
    that aborts nothing keeps everything. The gates do not depend on the target. `tolerance`: what a
    rate of at most `alpha` may show in so many draws (α + 3σ). `clustered`: how often a policy just
    below the target is certified when all rollouts of a task are counted, and when one is.
    """
    law = law or Law()
    methods: list[dict[str, Any]] = []
    gates: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    for target in targets:
        found = simulate(law, range(draws), target, seed=seed, tasks=tasks, margin=margin)
        common = {"draws": draws, "tasks": tasks, "alpha": float(ALPHA)}
        common["tolerance"] = tolerance(draws, float(ALPHA))
        rates = found.rates()
        methods += [
            {"target": target, "method": name, "promises": name != "margin", **common}
            | {key: rates[name][key] for key in ("violated", "deployed", "savings")}
            for name in METHODS
        ]
        few, rollouts = CLUSTERED
        shares = clustered(law, draws, target, seed=seed, tasks=few, rollouts=rollouts)
        groups += [
            {"target": target, "counted": counted, "rollouts": rollouts}
            | common
            | {"tasks": few, "certified": share}
            for counted, share in zip(("all rollouts", "one per task"), shares, strict=True)
        ]
        if not gates:
            broken = found.gate_broken.mean(axis=0)
            gates = [
                {"gate": r + 1, "budget": budget, "below": float(broken[r, b]), **common}
                for r in range(law.gates)
                for b, budget in enumerate(GRID)
            ]
    return {"methods": methods, "gates": gates, "clustered": groups}
