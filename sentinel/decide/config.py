"""What the decision layer can be told; the defaults are the paper's (Sections 3.2 and 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sentinel.decide.exact import decimal_text
from sentinel.errors import UserError


@dataclass(frozen=True)
class DecideConfig:
    """Settings of fit and evaluation. Numbers that act exactly are decimal texts.

    `lambdas` stakes; `gate_budget` share of answerable questions the gate may exit;
    `selection_margin` AUROC by which the hybrid estimator must beat the head; `estimator_seed` of
    the gradient boosting;
    `shares` π to which RS is reweighted; `resamples`, `seed` of the cluster bootstrap;
    `seconds_per_step` of a serial timed rerun, where there was one.
    """

    lambdas: tuple[str, ...] = ("1", "4", "9")
    gate_budget: str = "0.005"
    selection_margin: str = "0.005"
    estimator_seed: int = 42
    shares: tuple[str, ...] = ("0.2", "0.33")
    resamples: int = 2000
    seed: int = 42
    seconds_per_step: float | None = None

    @classmethod
    def of(
        cls,
        lambdas: Sequence[str | int | float] = ("1", "4", "9"),
        gate_budget: str | float = "0.005",
        selection_margin: str | float = "0.005",
        shares: Sequence[str | float] = ("0.2", "0.33"),
        **rest: Any,
    ) -> DecideConfig:
        """A checked config from plain values; raises UserError for values that make no sense."""
        stakes = tuple(decimal_text(value) for value in lambdas)
        if not stakes or len(set(stakes)) != len(stakes):
            raise UserError(
                "no λ, or one given twice", "give each stake once, as in --lambdas 1 4 9"
            )
        pi = tuple(decimal_text(value, "share") for value in shares)
        budget = decimal_text(gate_budget, "gate_budget")
        if Fraction(budget) >= 1 or any(not 0 < Fraction(p) < 1 for p in pi):
            raise UserError(
                f"gate budget {budget} or shares {', '.join(pi)} lie outside (0, 1)",
                "the gate's budget lies in [0, 1), each share in (0, 1)",
            )
        config = cls(stakes, budget, decimal_text(selection_margin, "margin"), shares=pi, **rest)
        speed = config.seconds_per_step
        if speed is not None and not 0 < speed < float("inf"):
            raise UserError(f"{speed} seconds per step", "give a positive number, or leave it out")
        if config.resamples < 1 or config.seed < 0 or config.estimator_seed < 0:
            raise UserError(
                "resamples must be ≥ 1 and seeds ≥ 0", "change the bootstrap's settings"
            )
        return config
