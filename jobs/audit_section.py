"""The section of a run config for the audit of the train pool."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from jobs.sections import Section


class AuditConfig(Section):
    """Baselines, controls and the feature screen: what is cheap is always done."""

    permutations: int = Field(default=3, ge=1)
    """Shuffled-label controls with TF–IDF over episodes, per target."""
    loop: Literal["off", "tfidf", "heads"] = "tfidf"
    """One permutation through the training loop of the correctness head, every prefix and fold:
    `heads` with the run's own heads (as many fits as the correctness head has folds), `tfidf` with
    the cheap ones, in the same loop."""
    seeds: int = 0
    """Head seeds whose out-of-fold AUROCs give the seed variance, the run's own among them: 0 (not
    run), or 3 and more; each further one costs what the run's heads cost, without the final pair.
    """
    resamples: int = Field(default=1000, ge=1)
    """Of templates, for the intervals of the screen and the baselines."""
    seed: int = Field(default=42, ge=0)
    """Of the permutations and the resamples."""

    @field_validator("seeds")
    @classmethod
    def _enough(cls, value: int) -> int:
        if value != 0 and value < 3:
            raise ValueError("must be 0 (not run) or at least 3, to be a spread")
        return value
