"""The early stop s_λ: an exact search over every candidate (the paper, Section 3.2).

A stop only ever turns a delivered answer into an abstention or ends an episode sooner, so that
both the score and the steps saved are step functions of s: one sort serves all candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from sentinel.decide.table import Bools, Floats, Ints, Prefixes

Threshold = float | Literal["never", "always"]


@dataclass(frozen=True)
class Stop:
    """Stop iff the calibrated prefix value < s, at t < T; the words "never" and "always" are
    thresholds.

    On the n calibration episodes it was chosen on: `good` − λ·`bad` is n·RS(λ), `saved` of `steps`.
    """

    s: Threshold
    good: int
    bad: int
    saved: int
    steps: int
    n: int
    candidates: int

    def fires(self, p: Floats) -> Bools:
        """Where the stop fires, elementwise for rows with t < T; NaN never does, but "always"
        always."""
        if isinstance(self.s, str):
            return np.full(np.shape(p), self.s == "always")
        return np.asarray(p < self.s)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able fields."""
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Stop:
        """Inverse of `to_dict`."""
        return cls(**data)


def fit_stop(
    pool: Prefixes, prefix_p: Floats, gate_time: Ints, deliverable: Bools, lam: str
) -> Stop:
    """s that maximises RS(λ) of gate + stop + Chow on the calibration episodes, all else frozen.

    Parameters
    ----------
    pool : E calibration episodes with a known outcome.
    prefix_p : (N,) calibrated prefix value of every snapshot; NaN never stops.
    gate_time : (E,) first t at which the gate exits, T + 1 where it never does.
    deliverable : (E,) committed answers that pass Chow's rule at this λ, whether or not gated.
    lam : λ as decimal text; RS is compared exactly, as integers.

    Candidates: "never", every distinct value at t < T, "always" (refuses everything at t = 0).
    Ties go to more steps saved, then to the smaller s ("never" smallest, "always" largest).
    """
    early = pool.t < np.repeat(pool.T, pool.T + 1)
    reach = np.minimum(gate_time, pool.T)  # where an episode ends without a stop
    delivered = deliverable & (gate_time > pool.T)
    lowest = pool.smallest(prefix_p, early)
    values = np.unique(prefix_p[early & ~np.isnan(prefix_p)])

    # Delivered answers that survive s: those whose lowest value is ≥ s.
    good_low = np.sort(lowest[delivered & pool.good])
    bad_low = np.sort(lowest[delivered & ~pool.good])
    lost_refusals = np.sort(lowest[delivered & ~pool.answerable])
    good_left = len(good_low) - np.searchsorted(good_low, values, side="left")
    bad_left = len(bad_low) - np.searchsorted(bad_low, values, side="left")
    wrong_refusals = len(lost_refusals) - np.searchsorted(lost_refusals, values, side="left")
    unanswerable = int((~pool.answerable).sum())
    good = good_left + unanswerable - wrong_refusals

    at, gain = _gains(pool, prefix_p, early, reach)
    order = np.argsort(at, kind="stable")
    cumulated = np.concatenate(([0], np.cumsum(gain[order])))
    base = int((pool.T - reach).sum())
    saved = base + cumulated[np.searchsorted(at[order], values, side="left")]

    steps = int(pool.T.sum())
    never_good = len(good_low) + unanswerable - len(lost_refusals)
    options: list[tuple[Threshold, int, int, int]] = [("never", never_good, len(bad_low), base)]
    options += zip(values.tolist(), good.tolist(), bad_left.tolist(), saved.tolist(), strict=True)
    options.append(("always", unanswerable, 0, steps))
    ratio = Fraction(lam)
    p, q = ratio.numerator, ratio.denominator

    def rank(i: int) -> tuple[int, int, int]:
        _, n_good, n_bad, n_saved = options[i]
        return q * n_good - p * n_bad, n_saved, -i

    s, n_good, n_bad, n_saved = options[max(range(len(options)), key=rank)]
    return Stop(s, n_good, n_bad, n_saved, steps, len(pool), len(options))


def _gains(pool: Prefixes, p: Floats, early: Bools, reach: Ints) -> tuple[Floats, Ints]:
    """Values v and the steps that a stop with s > v saves beyond those that smaller values save.

    Only an episode's new minima matter: the stop at s fires at the first t with value < s.
    """
    rows = np.flatnonzero(early & ~np.isnan(p))
    owner = pool.owner[rows]
    if not len(rows):
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    width = int(pool.T.max())
    grid = np.full((len(pool), width + 1), np.inf)
    grid[owner, pool.t[rows]] = p[rows]
    before = np.minimum.accumulate(grid, axis=1)
    record = np.isfinite(grid)
    record[:, 1:] &= grid[:, 1:] < before[:, :-1]
    who, when = np.nonzero(record)  # by episode, then by t: ever lower records
    later = np.where(np.append(who[1:] == who[:-1], False), np.append(when[1:], 0), pool.T[who])
    end = reach[who]
    return grid[who, when], np.minimum(later, end) - np.minimum(when, end)
