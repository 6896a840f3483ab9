"""The section of a run config for the hidden states that probes read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from jobs.sections import Real, Section


def _layers(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class ActivationsConfig(Section):
    """Hidden states of every round: at which layers, of which rounds, and how they are computed."""

    layers: Annotated[Literal["sweep"] | tuple[int, ...], BeforeValidator(_layers)] = "sweep"
    """Layer k = 1…L is the residual stream after block k. One id: that layer, without a sweep;
    several, or `sweep` for all: the sweep takes one of them per cell and mode of the cascade."""
    sweep_share: Real = Field(default=0.2, gt=0, le=1)
    """Share of the tasks (in strict mode, of the fit tasks) that the sweep reads."""
    rounds: int | None = Field(default=None, ge=1)
    """Rounds 1…rounds are extracted; None: as many as the cascade has gates."""
    dtype: Literal["agent", "float64", "float32", "bfloat16", "float16"] = "agent"
    """What the model computes in; `agent`: as it did when it made the episodes."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    tokens_per_batch: int = Field(default=16_384, ge=1)
    """Tokens of one forward pass; a longer episode goes alone."""
    UNHASHED: ClassVar[frozenset[str]] = frozenset({"device", "tokens_per_batch"})

    @field_validator("layers")
    @classmethod
    def _ids(cls, value: Any) -> Any:
        if value != "sweep" and (not value or len(set(value)) != len(value) or min(value) < 1):
            raise ValueError("must be sweep, or layer ids from 1 on, each once")
        return value
