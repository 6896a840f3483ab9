"""Playing frozen thresholds over episodes: who exits when, and what is delivered (Section 3.2).

The gate is read at every t = 0…T, the stop at t = 0…T − 1, Chow's rule at T on a committed answer.
The exit time is the first t at which one fires; at one t the gate is named first. The output is
then ⊥.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentinel.decide.exact import chow_threshold, decimal_text
from sentinel.decide.policy import Policy
from sentinel.decide.table import Bools, Floats, Ints, Prefixes, from_table

SYSTEMS = ("vanilla", "gate", "full", "early-exit", "chow", "exact-bar")
"""The ladder (vanilla, + gate, + Chow = full, + early exit), Chow alone, and full with the exact
bar."""
NONE, GATE, STOP, CHOW = 0, 1, 2, 3
EXIT_NAMES = (None, "gate", "stop", "chow")


@dataclass(frozen=True)
class Decisions:
    """One system at one λ on E episodes.

    `exit_time` e (E,): turns actually run; `exit_by` (E,) index into `EXIT_NAMES`; `delivered`
    (E,);
    `p` (E,) calibrated probability where Chow's rule read one, else NaN. `saved` T − e.
    """

    system: str
    lam: str
    exit_time: Ints
    exit_by: NDArray[np.int64]
    delivered: Bools
    p: Floats
    gain: Ints
    loss: Ints

    @property
    def reward(self) -> Floats:
        """RS(λ) of each episode, shape (E,): +1, 0 or −λ."""
        return self.gain - float(self.lam) * self.loss


def apply(
    policy: Policy, data: Prefixes | pa.Table, lam: str | int | float, system: str
) -> Decisions:
    """Decide every episode of `data` (`prefix_scores`, any pool) with a frozen policy.

    Raises KeyError for "early-exit" at a λ the policy was not fitted for, ValueError for an unknown
    system, or for "exact-bar" where its map was refused.
    """
    if system not in SYSTEMS:
        raise ValueError(f"unknown system {system!r} (valid: {', '.join(SYSTEMS)})")
    pool = data if isinstance(data, Prefixes) else from_table(data)
    lam = decimal_text(lam)
    T = pool.T
    never = T + 1
    gated = never
    if system not in ("vanilla", "chow"):
        gated = pool.first(policy.gate.fires(pool.p_answerable))
    stopped = never
    if system == "early-exit":
        early = pool.t < np.repeat(T, T + 1)
        stopped = pool.first(early & policy.stops[lam].fires(policy.prefix_p(pool)))
    fired = np.minimum(gated, stopped)
    exit_time = np.minimum(fired, T)
    exit_by = np.select(
        [fired > T, gated <= stopped], [np.full(len(T), NONE), np.full(len(T), GATE)], STOP
    ).astype(np.int64)
    delivered = pool.answered & (fired > T)
    p = np.full(len(T), np.nan)
    if system in ("full", "early-exit", "chow", "exact-bar"):
        reads = delivered
        p = np.where(reads, policy.delivery_p(pool), np.nan)
        delivered = reads & passes_chow(policy, pool, p, lam, exact=system == "exact-bar")
        exit_by = np.where(reads & ~delivered, CHOW, exit_by)
    return Decisions(system, lam, exit_time, exit_by, delivered, p, *outcome(pool, delivered))


def passes_chow(policy: Policy, pool: Prefixes, p: Floats, lam: str, exact: bool = False) -> Bools:
    """Deliver iff p ≥ τ_λ is true, shape (E,); a missing p is never delivered.

    τ = λ/(1+λ); the exact bar is (λ+ε)/(1+λ) with ε the calibrated probability of being
    unanswerable.
    """
    if not exact:
        return np.asarray(p >= chow_threshold(lam))
    if policy.unanswerable_map is None:
        raise ValueError("the exact bar's map was refused on the calibration pool")
    epsilon = policy.unanswerable_map(policy.unanswerable_logit(pool)[pool.end])
    stake = float(lam)
    return np.asarray(p >= (stake + epsilon) / (1 + stake))


def outcome(pool: Prefixes, delivered: Bools) -> tuple[Ints, Ints]:
    """(gain, loss) as 0/1 arrays (E,): RS(λ) = gain − λ·loss, the paper's Equation 1."""
    gain = (delivered & pool.good) | (~delivered & ~pool.answerable)
    loss = delivered & ~pool.good
    return gain.astype(np.int64), loss.astype(np.int64)


def systems_of(policy: Policy) -> tuple[str, ...]:
    """The systems that this policy can play."""
    if policy.unanswerable_map is None:
        return tuple(s for s in SYSTEMS if s != "exact-bar")
    return SYSTEMS
