"""The frozen policy on one running episode, step by step (the paper, Section 3.2).

The gate is read at every t = 0…T, the stop at t < T, Chow's rule at T on a committed answer; the
first that fires ends the episode. Each value goes through the very functions that decided the
calibration and held-out tables (`sentinel.decide`), in the same width: what was decided there is
decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sentinel.calibrate import logit, sigmoid
from sentinel.decide.exact import decimal_text
from sentinel.decide.play import EXIT_NAMES, SYSTEMS, passes_chow, systems_of
from sentinel.decide.policy import Policy
from sentinel.decide.table import Prefixes
from sentinel.errors import UserError
from sentinel.heads.config import ANSWERABILITY, CORRECTNESS
from sentinel.monitor.text_heads import TextHeads
from sentinel.tables import FEATURES

if TYPE_CHECKING:
    from sentinel.episodes import Episode

_NONE, _GATE, _STOP, _CHOW = EXIT_NAMES


@dataclass(frozen=True)
class Verdict:
    """What the monitor says of an episode after t turns.

    `ends`: nothing more is run. `by`: gate, stop, chow, or None where nothing fired. `delivered`:
    None while the episode runs, then whether its answer leaves the system. The probabilities that
    were read, None where none was: raw `p_answerable`, calibrated `p_prefix` (the stop's) and
    `p_delivery` (Chow's).
    """

    t: int
    ends: bool
    by: str | None
    delivered: bool | None
    p_answerable: float | None
    p_prefix: float | None
    p_delivery: float | None


@dataclass(frozen=True)
class Monitor:
    """One agent's frozen policy with its two heads, as `sentinel.monitor.load` reads it.

    `facts`: the manifest: fingerprints of task and agent, how the heads were trained, the file
    hashes and `hash`, which names this monitor.
    """

    policy: Policy
    heads: TextHeads
    facts: Mapping[str, Any]

    @property
    def lambdas(self) -> tuple[str, ...]:
        """Stakes that a stop was fitted for."""
        return tuple(self.policy.stops)

    def watch(self, lam: str | int | float, system: str = "early-exit") -> Watch:
        """Begin an episode. Raises UserError for a system or stake that cannot be played."""
        lam = decimal_text(lam)
        check_system(self.policy, lam, system)
        return Watch(self, lam, system)

    def replay(
        self,
        question: str,
        episode: Episode,
        lam: str | int | float,
        system: str = "early-exit",
        features: ArrayLike | None = None,
    ) -> Verdict:
        """Play a finished episode as if it ran: the verdict that ended it.

        `features`: (T+1, 10), as `sentinel.features.trajectory_features` gives them; needed where
        the hybrid estimator delivers.
        """
        watch = self.watch(lam, system)
        rows = None if features is None else np.asarray(features, dtype=np.float64)
        for t in range(len(episode.steps) + 1):
            verdict = watch.see(
                self.render(question, episode, t),
                last=t == len(episode.steps),
                answered=episode.end == "answered",
                features=None if rows is None else rows[t],
            )
            if verdict.ends:
                return verdict
        raise AssertionError("an episode ends at T")

    def render(self, question: str, episode: Episode, t: int) -> str:
        """What the heads read after t turns, in this monitor's dialect."""
        from sentinel.agent.react import Dialect
        from sentinel.episodes import render

        dialect = Dialect(**self.facts["dialect"])
        return render(question, episode.steps, t, episode, dialect)


def check_system(policy: Policy, lam: str, system: str) -> None:
    """Raise UserError for a system, or a stake of its stop, that a policy cannot play."""
    valid = systems_of(policy)
    if system not in valid:
        why = " (its map was refused)" if system in SYSTEMS else ""
        raise UserError(f"no system {system}{why}", f"use one of: {', '.join(valid)}")
    if system == "early-exit" and lam not in policy.stops:
        raise UserError(
            f"the monitor has no stop for λ = {lam}", f"use one of: {', '.join(policy.stops)}"
        )


class Watch:
    """One running episode under one system and stake; t counts its calls from 0."""

    def __init__(self, monitor: Monitor, lam: str, system: str) -> None:
        self._monitor = monitor
        self.lam = lam
        self.system = system
        self.t = 0
        self._reading = monitor.heads.episode()
        self.verdict: Verdict | None = None

    def see(
        self,
        text: str,
        *,
        last: bool = False,
        answered: bool = False,
        features: ArrayLike | None = None,
    ) -> Verdict:
        """Read the rendered prefix of t turns (the first call: the question alone) and decide.

        `last`: the agent has ended by itself, with an answer where `answered`; `features`: the ten
        of this prefix, needed at the last where the hybrid estimator delivers.
        """
        found = self._reading.logits(text)
        return self.read(
            found[ANSWERABILITY],
            found[CORRECTNESS],
            last=last,
            answered=answered,
            features=features,
        )

    def read(
        self,
        answerability: float,
        correctness: float,
        *,
        last: bool = False,
        answered: bool = False,
        features: ArrayLike | None = None,
    ) -> Verdict:
        """Decide from the raw logits of both heads at t; NaN where there is none."""
        if self.verdict is not None and self.verdict.ends:
            raise ValueError("this episode has ended")
        if last and self.t == 0:
            raise ValueError("an episode ends after its first turn at the earliest")
        policy, system = self._monitor.policy, self.system
        now = _moment(answerability, correctness, answered and last, features)
        gated = system not in ("vanilla", "chow") and bool(policy.gate.fires(now.p_answerable)[0])
        p_prefix = None
        stopped = False
        if system == "early-exit" and not last:
            p = policy.prefix_p(now)
            p_prefix = _number(p[0])
            stopped = bool(policy.stops[self.lam].fires(p)[0])
        by = _GATE if gated else _STOP if stopped else _NONE
        delivered: bool | None = False if by is not None else None
        p_delivery = None
        if last and by is None:
            delivered = answered
            if answered and system in ("full", "early-exit", "chow", "exact-bar"):
                q = policy.delivery_p(now)
                p_delivery = _number(q[0])
                exact = system == "exact-bar"
                delivered = bool(passes_chow(policy, now, q, self.lam, exact=exact)[0])
                by = None if delivered else _CHOW
        self.verdict = Verdict(
            self.t,
            last or by is not None,
            by,
            delivered,
            _number(now.p_answerable[0]),
            p_prefix,
            p_delivery,
        )
        self.t += 1
        return self.verdict


def _moment(
    answerability: float, correctness: float, answered: bool, features: ArrayLike | None
) -> Prefixes:
    """One snapshot as the decision layer lays it out: probabilities first, as its table has them,
    then the logit of the probability."""
    columns = None
    if features is not None:
        columns = np.asarray(features, dtype=np.float64).reshape(1, len(FEATURES))
    p_correct = sigmoid([correctness])
    one = np.ones(1, dtype=bool)
    nothing = np.array([""], dtype=object)
    return Prefixes(
        agent="",
        episode=nothing,
        group=nothing,
        pool=nothing,
        T=np.zeros(1, dtype=np.int64),
        answerable=one,
        answered=np.array([answered]),
        good=~one,
        labelled=one,
        start=np.zeros(1, dtype=np.int64),
        t=np.zeros(1, dtype=np.int64),
        p_answerable=sigmoid([-answerability]),
        score=logit(p_correct),
        p_correct=p_correct,
        features=columns,
        missing_features=() if columns is not None else FEATURES,
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
