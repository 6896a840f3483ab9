"""Independent certificate: one look at a separate sample after the policy is frozen (the paper,
"Independent post-selection certificate")."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sentinel.cascade.bounds import compare_tail, lower_bound, rate_for_power, smallest_rank
from sentinel.cascade.planner import missing_successes, successes_needed

POWER = "0.8"


@dataclass(frozen=True)
class Certificate:
    """K of n certification successes survive; `passed` iff bound(K, n) > ρ* at level `alpha`.

    `needs`: successes that would have passed at the same number lost; `missing` how many more.
    """

    target: str
    alpha: float
    successes: int
    kept: int
    bound: float | None
    passed: bool
    needs: int
    missing: int


def certify(kept: int, n: int, target: str, alpha: Fraction) -> Certificate:
    """Certificate of a frozen policy; `alpha` is already shared among the targets on the sample.

    P(certified and true recall ≤ ρ*) ≤ α over the sample of n independent successes.

    >>> certify(114, 114, "0.974", Fraction("0.05")).passed
    True
    >>> certify(114, 114, "0.98", Fraction("0.05")).needs
    149
    """
    rho = Fraction(target)
    passed = n > 0 and compare_tail(kept, n, rho, alpha) < 0
    return Certificate(
        target,
        float(alpha),
        n,
        kept,
        lower_bound(kept, n, alpha),
        passed,
        n if passed else successes_needed(rho, alpha, n - kept),
        0 if passed else missing_successes(rho, alpha, n, n - kept),
    )


def recall_to_pass(n: int, target: str, alpha: Fraction, power: str = POWER) -> Fraction | None:
    """The true recall at which n certification successes pass with this power.

    The search before a certificate asks for at least this much. None where even all n surviving
    would not pass. Only n enters, never a score of the certification sample.
    """
    rank = smallest_rank(n, Fraction(target), alpha, strict=True)
    if rank is None:
        return None
    return Fraction(rate_for_power(n, rank, float(Fraction(power))))
