"""The frozen cascade: one threshold per gate. Read back from JSON it decides exactly as before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentinel.cascade.gates import Thresholds
from sentinel.errors import UserError
from sentinel.tables import VERSION as TABLES

VERSION = 1
NONE = "none"


@dataclass(frozen=True)
class CascadePolicy:
    """Abort at gate r iff f_r > τ_r is true; a NaN or missing score passes.

    `thresholds` τ_1…τ_G, None = the gate aborts nothing (written as the word "none"); `budget`
    t_1…t_G as decimal texts, None where they were not searched; `target` and `margin` ρ* and δ;
    `after_feedback`: gates are not read on an episode's last round.
    """

    cell: str
    scorer: str
    mode: str
    method: str
    target: str
    margin: str | None
    thresholds: tuple[float | None, ...]
    budget: tuple[str, ...] | None = None
    gate: str = "clopper-pearson"
    alpha: str | None = "0.05"
    after_feedback: bool = False
    guaranteed: bool = False
    reason: str | None = None

    @property
    def aborts_nothing(self) -> bool:
        """No gate has a threshold."""
        return all(tau is None for tau in self.thresholds)

    def aborts(self, round_: int, score: float | None) -> bool:
        """Does gate `round_` (1-based) abort on this score? No where it has no gate or score."""
        tau = self.thresholds[round_ - 1] if 1 <= round_ <= len(self.thresholds) else None
        return tau is not None and score is not None and bool(score > tau)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a gate without a threshold has the word "none"."""
        taus = [NONE if tau is None else tau for tau in self.thresholds]
        return {
            "version": VERSION,
            "tables": TABLES,
            **{k: v for k, v in self.__dict__.items() if k not in ("thresholds", "budget")},
            "thresholds": taus,
            "budget": None if self.budget is None else list(self.budget),
        }

    def to_json(self) -> str:
        """Canonical JSON text; NaN and Infinity never occur."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CascadePolicy:
        """Inverse of `to_dict`; raises UserError for another version or a threshold that is none
        of: a finite number, "none"."""
        values = {k: v for k, v in data.items() if k not in ("version", "tables")}
        if data.get("version") != VERSION:
            raise UserError(f"cascade policy of version {data.get('version')}", "search it again")
        written = values.pop("thresholds")
        taus = tuple(None if tau == NONE else tau for tau in written)
        if not all(tau == NONE or _finite(tau) for tau in written):
            raise UserError("a threshold is neither a finite number nor `none`", "search it again")
        budget = values.pop("budget")
        try:
            return cls(thresholds=taus, budget=budget and tuple(budget), **values)
        except TypeError as error:
            raise UserError(f"cascade policy is damaged ({error})", "search it again") from error

    @classmethod
    def from_json(cls, text: str) -> CascadePolicy:
        """Inverse of `to_json`."""
        return cls.from_dict(json.loads(text))

    def hash(self) -> str:
        """Identity of the monitor: sha256 of its canonical JSON."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)


def chosen(thresholds: Thresholds, vector: Sequence[int] | None) -> tuple[float | None, ...]:
    """Thresholds of a candidate's budget indices; all None for no candidate."""
    if vector is None:
        return (None,) * thresholds.gates
    taus = [float(thresholds.values[r, b]) for r, b in enumerate(vector)]
    return tuple(None if np.isinf(tau) else tau for tau in taus)
