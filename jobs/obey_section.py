"""The section of a run config that says what of a frozen monitor collection obeys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from jobs.sections import Real, Section, decimal


class ObeySection(Section):
    """Read where `stop_with` names a monitor; what is left out must be the only choice there is."""

    method: Literal["sentinel", "cascade"] | None = None
    """Which of an agent's two monitors."""
    system: Literal["gate", "full", "early-exit", "chow", "exact-bar"] = "early-exit"
    """How much of a sentinel monitor: the gate, with Chow's rule (`full`), with the stop too."""
    lam: Real | None = Field(default=None, ge=0)
    """λ of the stop and of Chow's rule."""
    target: Annotated[str | None, BeforeValidator(decimal)] = None
    """The cascade's policy, by its recall target."""
    other_tasks: bool = False
    """Obey it on other tasks of its benchmark, which its thresholds promise nothing for."""
