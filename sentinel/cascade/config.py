"""What a cascade can be told; the defaults are the paper's, or the stricter ones named beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sentinel.cascade.gates import GRID, Thresholds
from sentinel.cascade.planner import open_share
from sentinel.cascade.search import MEMORY
from sentinel.errors import UserError
from sentinel.exact import decimal_text

MODES = ("strict", "paper")
METHODS = ("fixed-sequence", "full-search", "certificate", "margin")
GATES = ("clopper-pearson", "conformal")
SEEDS = 20
"""Splits drawn in paper mode."""


@dataclass(frozen=True)
class CascadeConfig:
    """Settings of search and evaluation. Numbers that act exactly are decimal texts.

    `targets` ρ*; `mode` strict or paper; `method` how a policy is chosen and what is promised
    (paper mode knows the margin only); `grid` budgets, ascending; `gates` at rounds 1…gates;
    `alpha` level of each gate; `alpha_promise` level of certificate or sequence, shared by all
    targets; `margin` δ; `gate` Clopper–Pearson or conformal thresholds; `after_feedback` alive ⇔
    T > r; `seed` of splits and rollouts, `seeds` splits drawn in paper mode; `unit` what is split
    and counts as independent: task or group; `rollouts` one per task, or all; `unseen_scorer`: the
    user declares that the scorer was fitted on none of the table's tasks; `memory` bytes a search
    may take; `given` thresholds of the user's own, whose grid and gates replace the config's.
    """

    targets: tuple[str, ...] = ("0.95",)
    mode: str = "strict"
    method: str = "fixed-sequence"
    grid: tuple[str, ...] = GRID
    gates: int = 6
    alpha: str = "0.05"
    alpha_promise: str = "0.05"
    margin: str = "0.02"
    gate: str = "clopper-pearson"
    after_feedback: bool = False
    seed: int = 0
    seeds: int = 1
    unit: str = "task"
    rollouts: str = "one"
    unseen_scorer: bool = False
    memory: int = MEMORY
    given: Thresholds | None = None

    @classmethod
    def of(
        cls,
        targets: Sequence[str | float] = ("0.95",),
        mode: str = "strict",
        method: str | None = None,
        grid: Sequence[str | float] = GRID,
        *,
        alpha: str | float = "0.05",
        alpha_promise: str | float = "0.05",
        margin: str | float = "0.02",
        seeds: int | None = None,
        rollouts: str | None = None,
        **rest: Any,
    ) -> CascadeConfig:
        """A checked config from plain values; raises UserError for values that make no sense."""
        _one_of("mode", mode, MODES)
        method = method or ("margin" if mode == "paper" else "fixed-sequence")
        _one_of("method", method, METHODS)
        if mode == "paper" and method != "margin":
            raise UserError(
                f"paper mode promises nothing, so it has no {method}",
                "use --mode strict, or leave --method out",
            )
        names = tuple(open_share(t, "target") for t in targets)
        if not names or len(set(names)) != len(names):
            raise UserError("no target, or one given twice", "give each once: --target 0.9 0.95")
        config = cls(
            names,
            mode,
            method,
            checked_grid(grid),
            alpha=open_share(alpha, "alpha"),
            alpha_promise=open_share(alpha_promise, "alpha"),
            margin=decimal_text(margin, "margin"),
            seeds=(SEEDS if mode == "paper" else 1) if seeds is None else seeds,
            rollouts=rollouts or ("all" if mode == "paper" else "one"),
            **rest,
        )
        if config.given is not None:
            config = replace(
                config, grid=config.given.grid, gates=config.given.gates, gate=config.given.kind
            )
        _one_of("gate", config.gate, (*GATES, "given"))
        _one_of("unit", config.unit, ("task", "group"))
        _one_of("rollouts", config.rollouts, ("one", "all"))
        if config.gates < 1 or config.seed < 0 or config.seeds < 1 or config.memory < 1:
            raise UserError(
                "gates, seeds and memory must be ≥ 1 and the seed ≥ 0", "change the numbers given"
            )
        if mode == "strict" and config.seeds > 1:
            raise UserError(
                "strict mode looks once: its testing sample cannot be drawn again by other seeds",
                "leave --seeds out, or use --mode paper",
            )
        return config

    @property
    def promise(self) -> Fraction:
        """α of one target: all targets on one sample share it."""
        return Fraction(self.alpha_promise) / len(self.targets)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able settings; memory left out, it changes no result."""
        return {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in self.__dict__.items()
            if k not in ("memory", "given")
        }


def checked_grid(grid: Sequence[str | float]) -> tuple[str, ...]:
    """Budgets as decimal texts, ascending; raises UserError for repeats or values outside (0, 1].

    >>> checked_grid([1.0, "0.90", 0.95])
    ('0.9', '0.95', '1')
    """
    texts = [decimal_text(t, "budget") for t in grid]
    if not texts or len(set(texts)) != len(texts) or any(not 0 < Fraction(t) <= 1 for t in texts):
        raise UserError(
            f"budgets {', '.join(texts) or '(none)'} are not distinct values in (0, 1]",
            "give them as in --grid 0.85 0.9 0.95 1",
        )
    return tuple(sorted(texts, key=Fraction))


def _one_of(name: str, value: str, valid: Sequence[str]) -> None:
    if value not in valid:
        raise UserError(f"unknown {name} {value}", f"valid: {', '.join(valid)}")
