"""The exit gate θ on the raw probability of being answerable (the paper, Section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Gate:
    """Exit iff p_answerable < theta; `theta` None never exits.

    `k` of the `n` answerable calibration questions may exit, `exiting` of them do.
    """

    theta: float | None
    n: int
    k: int
    exiting: int

    def fires(self, p_answerable: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Where the gate exits, elementwise; NaN never exits."""
        if self.theta is None:
            return np.zeros(np.shape(p_answerable), dtype=bool)
        return np.asarray(p_answerable < self.theta)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a gate that never exits has the word "never"."""
        theta = "never" if self.theta is None else self.theta
        return {"theta": theta, "n": self.n, "k": self.k, "exiting": self.exiting}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Gate:
        """Inverse of `to_dict`."""
        theta = None if data["theta"] == "never" else float(data["theta"])
        return cls(theta, data["n"], data["k"], data["exiting"])


def fit_gate(smallest: ArrayLike, budget: str | Fraction) -> Gate:
    """θ is the (k+1)-th smallest of the episodes' minima, k = ⌊budget·n⌋ in exact arithmetic.

    Parameters
    ----------
    smallest : (n,) smallest p_answerable over t = 0…T of every answerable calibration question with
        an episode, whatever its outcome; +inf or NaN where it has no score (it never exits).
    budget : share of them that may exit, in [0, 1).

    At most k of them are below θ, and any larger θ would exit more, ties included. Without an
    answerable episode, or where the (k+1)-th has no score, there is no gate.

    >>> fit_gate([0.3, 0.1, 0.2, 0.9], "0.5").theta
    0.3
    """
    m = np.asarray(smallest, dtype=np.float64)
    m = np.sort(np.where(np.isnan(m), np.inf, m))
    share = Fraction(budget)
    if not 0 <= share < 1:
        raise ValueError(f"gate budget {budget} outside [0, 1)")
    n = len(m)
    k = math.floor(share * n)
    if n == 0 or not np.isfinite(m[k]):
        return Gate(None, n, k, 0)
    theta = float(m[k])
    return Gate(theta, n, k, int((m < theta).sum()))
