"""The section of a run config for the hidden states that probes read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from jobs.sections import Real, Section


def _layers(value: Any) -> Any:
    """`sweep`, one id or several, as the tuple that a frozen model keeps."""
    if value == "sweep":
        return value
    ids = tuple(value) if isinstance(value, list | tuple) else (value,)
    known = all(isinstance(k, int) and not isinstance(k, bool) and k >= 1 for k in ids)
    if not ids or not known or len(set(ids)) != len(ids):
        raise ValueError("must be sweep, or layer ids from 1 on, each once")
    return ids


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
