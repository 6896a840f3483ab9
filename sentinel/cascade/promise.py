"""What a strict run may promise, by which method, under which conditions, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from sentinel.cascade import fixed_sequence
from sentinel.cascade.certificate import certify
from sentinel.cascade.config import CascadeConfig
from sentinel.cascade.gates import Thresholds
from sentinel.cascade.planner import successes_needed
from sentinel.cascade.play import play
from sentinel.cascade.policy import chosen
from sentinel.cascade.search import Searched
from sentinel.cascade.table import Rounds

Taus = tuple[float | None, ...]
INDEPENDENT = "if episodes were independent"
OWN = "if the thresholds were made without the testing sample"
UNSEEN = "if the scorer has seen none of these tasks"


@dataclass(frozen=True)
class Promise:
    """The deployed thresholds and what holds for them.

    `holds`: the test was passed. `guaranteed`: and nothing has to be assumed. `conditions`: what
    else would have to be true. `successes`, `kept`: of the testing sample under the deployed
    policy. `needs`: successes that would have served, where these did not.
    """

    method: str
    target: str
    alpha: float
    holds: bool
    thresholds: Taus
    budget: tuple[str, ...] | None
    successes: int
    kept: int
    needs: int | None
    reason: str | None
    facts: dict[str, Any]
    guaranteed: bool = False
    conditions: tuple[str, ...] = ()

    def under(self, config: CascadeConfig, repeated: bool, declared: bool) -> Promise:
        """The same with its conditions: several rollouts per task, or a scorer or
        thresholds of unknown past."""
        own = config.gate == "given"
        conditions = (INDEPENDENT,) * repeated + (UNSEEN,) * (not declared) + (OWN,) * own
        return replace(
            self,
            conditions=conditions,
            guaranteed=self.holds and not conditions and config.mode == "strict",
        )

    @property
    def text(self) -> str:
        """One sentence; "guaranteed" occurs only where nothing has to be assumed."""
        if not self.holds:
            return f"nothing is promised: {self.reason}"
        confidence = f"{100 * (1 - self.alpha):.6g}"
        what = (
            f"with confidence {confidence} % over the testing sample, at least {self.target} of "
            "the successes survive"
        )
        if self.guaranteed:
            return f"guaranteed: {what}"
        return f"{' and '.join(self.conditions) or 'in paper mode'}: {what}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; thresholds and budget stand in the policy."""
        data = asdict(self)
        del data["thresholds"], data["budget"]
        return {**data, "conditions": list(self.conditions), "text": self.text}


def by_chain(
    calibration: Rounds, thresholds: Thresholds, testing: Rounds, target: str, config: CascadeConfig
) -> Promise:
    """Fixed-sequence testing: order from calibration, one pass over the testing sample."""
    links = fixed_sequence.chain(calibration, thresholds)
    found = fixed_sequence.accept(links, thresholds, testing, target, config.promise)
    link = links[found.position]
    deployed = found.position > 0
    facts = {
        "chain": len(links),
        "accepted": found.position,
        "tested_kept": list(found.kept),
        "p_values": list(found.p_values),
    }
    return Promise(
        "fixed-sequence",
        target,
        found.alpha,
        deployed,
        fixed_sequence.chain_thresholds(thresholds, link) if deployed else chosen(thresholds, None),
        fixed_sequence.chain_budget(thresholds, link) if deployed else None,
        found.successes,
        found.kept[found.position],
        found.needs,
        None if deployed else found.reason,
        facts,
    )


def by_full_search(
    searched: Searched, thresholds: Thresholds, target: str, config: CascadeConfig
) -> Promise:
    """Every candidate tested at α/M on the sample that was searched."""
    choice, facts = fixed_sequence.full_search(searched, thresholds, target, config.promise)
    vector = None if choice.index is None else searched.vector(choice.index)
    taus = chosen(thresholds, vector)
    found = any(tau is not None for tau in taus)
    reason = choice.reason
    if not found and vector is not None:
        reason = f"no budget that keeps {choice.needed} of {choice.successes} saves anything"
    return Promise(
        "full-search",
        target,
        float(config.promise),
        found,
        taus,
        None if choice.index is None else searched.budget(choice.index),
        searched.successes,
        searched.successes if choice.kept is None else choice.kept,
        facts["needs"] if choice.index is None else None,
        reason,
        facts,
    )


def by_certificate(
    taus: Taus,
    budget: tuple[str, ...] | None,
    certification: Rounds,
    target: str,
    config: CascadeConfig,
    reason: str | None,
) -> Promise:
    """One look at the certification sample; a policy that fails is replaced by the no-op."""
    survives = play(taus, certification).survives & certification.success
    kept, n = int(survives.sum()), certification.successes
    found = certify(kept, n, target, config.promise)
    idle = all(tau is None for tau in taus)
    holds = found.passed and not idle
    if not found.passed:
        reason = (
            f"the certificate fails: {kept} of {n} successes survive, bound "
            f"{'undefined' if found.bound is None else format(found.bound, '.4f')}; with "
            f"{n - kept} lost it needs {found.needs}"
        )
    return Promise(
        "certificate",
        target,
        found.alpha,
        holds,
        taus if holds else (None,) * len(taus),
        budget if holds else None,
        n,
        kept,
        None if found.passed else found.needs,
        reason if not holds else None,
        {"bound": found.bound, "passed": found.passed},
    )


def stricter(target: str, have: int, alpha: Fraction, lost: int) -> list[dict[str, Any]]:
    """What each stricter target would need: independent successes with none and with the present
    number lost, and how many of them are missing."""
    out = []
    for name in LADDER:
        if Fraction(name) <= Fraction(target):
            continue
        clean = successes_needed(Fraction(name), alpha, 0)
        same = successes_needed(Fraction(name), alpha, lost)
        out.append(
            {
                "target": name,
                "needs_none_lost": clean,
                "needs_same_lost": same,
                "lost": lost,
                "missing": max(0, clean - have),
            }
        )
    return out


LADDER: Sequence[str] = ("0.8", "0.85", "0.9", "0.95", "0.98", "0.99")
