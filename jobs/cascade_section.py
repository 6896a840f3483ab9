"""The section of a run config for the abort cascade."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.sections import Section, as_tuple, decimal


def _decimals(value: Any) -> Any:
    return tuple(decimal(v) for v in value) if isinstance(value, list | tuple) else value


Decimals = Annotated[tuple[str, ...], BeforeValidator(_decimals), Field(min_length=1)]


class CascadeSection(Section):
    """The abort cascade: who scores the rounds, at which targets, in which modes."""

    modes: Annotated[tuple[Literal["paper", "strict"], ...], BeforeValidator(as_tuple)] = Field(
        default=("paper", "strict"), min_length=1
    )
    """`strict` alone may promise and export a monitor; `paper` cross-fits and re-draws splits."""
    scorers: Annotated[
        tuple[Literal["probe", "surface", "stacking", "heads", "tfidf", "task", "random"], ...],
        BeforeValidator(as_tuple),
    ] = Field(default=("probe", "surface", "stacking", "task", "random"), min_length=1)
    """Compared in paper mode, on the same folds."""
    main: Literal["probe", "surface", "stacking", "heads", "tfidf"] = "stacking"
    """The scorer of the headline table and the margin sweep."""
    deploy: Literal["probe", "surface", "stacking", "heads", "tfidf"] = "probe"
    """The scorer of strict mode: named beforehand, because all looks share one sample."""
    targets: Decimals = ("0.8", "0.85", "0.9", "0.95")
    strict_targets: Decimals = ("0.9", "0.95", "0.98", "0.99")
    """They share `alpha_promise`."""
    ablation_target: Annotated[str, BeforeValidator(decimal)] = "0.95"
    method: Literal["fixed-sequence", "full-search", "certificate", "margin"] = "fixed-sequence"
    """How strict mode chooses a policy and what it then promises."""
    gates: int = Field(default=6, ge=1)
    grid: Decimals = ("0.85", "0.9", "0.95", "0.98", "0.99", "1")
    gate: Literal["clopper-pearson", "conformal"] = "clopper-pearson"
    alpha: Annotated[str, BeforeValidator(decimal)] = "0.05"
    alpha_promise: Annotated[str, BeforeValidator(decimal)] = "0.05"
    margin: Annotated[str, BeforeValidator(decimal)] = "0.02"
    after_feedback: bool = False
    unit: Literal["task", "group"] = "task"
    """What is split and counts as independent."""
    rollouts: Literal["one", "all"] = "one"
    """Per task, wherever strict mode tests a promise."""
    seed: int = Field(default=0, ge=0)
    """Of folds and pools, and the first seed of the splits."""
    seeds: int = Field(default=20, ge=1)
    """Splits re-drawn in paper mode."""
    block: int = Field(default=5, ge=1)
    """Seeds per trial of the search."""
    prompt_price: int = Field(default=1, ge=0)
    generated_price: int = Field(default=4, ge=0)
    cost_unit: Literal["tokens", "microseconds"] = "tokens"
    error_words: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = (
        "error",
        "invalid",
        "fail",
    )
    """Surface feature: earlier feedbacks that hold one of these, in any case."""
    match: str | None = "depth"
    """Number of a task within whose values AUROCs are also compared; None: no matching."""

    @model_validator(mode="after")
    def _consistent(self) -> CascadeSection:
        for name in ("modes", "scorers", "targets", "strict_targets", "grid"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name}: each value once")
        if "paper" in self.modes and self.main not in self.scorers:
            raise ValueError(f"main scorer {self.main} is not among scorers")
        if self.prompt_price + self.generated_price == 0 and self.cost_unit == "tokens":
            raise ValueError("prices of 0 leave nothing to save")
        return self

    def scorers_of(self, mode: str) -> tuple[str, ...]:
        """The scorers that a mode uses."""
        return self.scorers if mode == "paper" else (self.deploy,)

    @property
    def needs_activations(self) -> bool:
        """Some scorer reads hidden states."""
        used = {s for mode in self.modes for s in self.scorers_of(mode)}
        return bool(used & {"probe", "stacking"})
