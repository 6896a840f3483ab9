"""A frozen monitor beside a running agent: when it ends the episode, and what leaves the system.

`turn` is asked before the agent's first turn and after each that goes on, `action` after an action
and before the environment answers, `close` when the episode is over. Both methods read what their
tables were made of, through the same functions: the rendered prefix (Sentinel), the round's text,
surface features or hidden state (the cascade).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentinel.agent.react import Dialect
from sentinel.episodes import Episode, Exit, render, stored
from sentinel.monitor.play import Monitor, Verdict
from sentinel.probes.surface import surface_features
from sentinel.tables import OUTCOME_ENDS

if TYPE_CHECKING:
    from sentinel.probes.monitor import CascadeMonitor

ROUND_GATE = "round gate"
Features = Callable[[Episode], ArrayLike]
"""The ten features at T of a finished episode, (10,)."""
Hidden = Callable[[Episode, int], "NDArray[np.float16] | None"]
"""The hidden state of a round, (d,) float16; None where it has none."""


class Running(Protocol):
    """One episode under a monitor."""

    @property
    def moment(self) -> Literal["turn", "action"]:
        """When it decides while the episode runs; the other is always False."""
        ...

    def turn(self, episode: Episode) -> bool:
        """Whether the episode ends here, t = `len(episode.steps)` turns done."""
        ...

    def action(self, episode: Episode) -> bool:
        """Whether it ends here: the last turn has its action and no feedback yet."""
        ...

    def close(self, episode: Episode) -> Exit:
        """What was decided of an episode that is over."""
        ...


class RunningSentinel:
    """Gate at t = 0…T, stop at t < T, Chow's rule at T on a committed answer.

    `features` is asked at T where the hybrid estimator delivers.
    """

    moment: Literal["turn", "action"] = "turn"

    def __init__(
        self,
        monitor: Monitor,
        question: str,
        lam: str,
        system: str = "early-exit",
        features: Features | None = None,
    ) -> None:
        self._watch = monitor.watch(lam, system)
        self._question = question
        self._dialect = Dialect(**monitor.facts["dialect"])
        self._features = features if monitor.policy.selection.chosen == "hybrid" else None
        self._exit = Exit(str(monitor.facts["hash"]), f"{system}, λ = {self._watch.lam}", 0)

    def turn(self, episode: Episode) -> bool:
        """Gate and stop on the prefix of all turns so far."""
        episode = stored(episode)
        # Not the episode itself: what says "step cap" is only known when it is over.
        text = render(
            self._question, episode.steps, len(episode.steps), None, dialect=self._dialect
        )
        return self._keep(self._watch.see(text))

    def action(self, episode: Episode) -> bool:
        """Nothing is read between an action and its result."""
        return False

    def close(self, episode: Episode) -> Exit:
        """Gate and Chow's rule at T of an episode that ended by itself."""
        verdict = self._watch.verdict
        if verdict is not None and verdict.ends:
            return self._exit
        if episode.end not in OUTCOME_ENDS:
            return replace(self._exit, exit_time=episode.turns)
        episode = stored(episode)
        answered = episode.end == "answered"
        asked = self._features if answered else None
        text = render(self._question, episode.steps, episode.turns, episode, self._dialect)
        self._keep(
            self._watch.see(
                text,
                last=True,
                answered=answered,
                features=None if asked is None else asked(episode),
            )
        )
        return self._exit

    def _keep(self, verdict: Verdict) -> bool:
        self._exit = replace(
            self._exit,
            exit_time=verdict.t,
            exit_by=verdict.by,
            delivered=verdict.delivered,
            p_answerable=verdict.p_answerable,
            p_prefix=verdict.p_prefix,
            p_delivery=verdict.p_delivery,
        )
        return verdict.ends


class RunningCascade:
    """Round gates of one target's policy; `hidden` is asked where the scorer reads hidden states.

    A gate is read after the round's action and before its feedback, on the closing round too; with
    a policy made `after_feedback`, when the episode goes on after it.
    """

    def __init__(
        self,
        monitor: CascadeMonitor,
        question: str,
        target: str,
        dialect: Dialect,
        hidden: Hidden | None = None,
    ) -> None:
        self._monitor, self._policy = monitor, monitor.policy(target)
        self._question, self._dialect, self._hidden = question, dialect, hidden
        self.moment: Literal["turn", "action"] = "turn" if self._policy.after_feedback else "action"
        self._exit = Exit(monitor.hash, f"cascade, target {target}", 0)

    def turn(self, episode: Episode) -> bool:
        """The gate of a round that is over, where the policy is read after feedback."""
        return self.moment == "turn" and bool(episode.steps) and self._gate(episode)

    def action(self, episode: Episode) -> bool:
        """The gate of the round that has just acted."""
        return self.moment == "action" and self._gate(episode)

    def close(self, episode: Episode) -> Exit:
        """The answer of an episode that no gate ended leaves the system."""
        if self._exit.exit_by is None:
            known = episode.end in OUTCOME_ENDS
            delivered = episode.end == "answered" if known else None
            self._exit = replace(self._exit, exit_time=episode.turns, delivered=delivered)
        return self._exit

    def _gate(self, episode: Episode) -> bool:
        r = len(episode.steps)
        if r > len(self._policy.thresholds) or self._policy.thresholds[r - 1] is None:
            return False
        episode, monitor = stored(episode), self._monitor
        text = render(self._question, episode.steps, r, None, self._dialect, feedback=False)
        vector = None if self._hidden is None else self._hidden(episode, r)
        surface = None
        if monitor.reads_surface:
            surface = surface_features(episode.steps, r, monitor.error_words)[r - 1]
        score = monitor.score(r, vector, surface, text)
        self._exit = replace(self._exit, score=score)
        if not self._policy.aborts(r, score):
            return False
        self._exit = replace(self._exit, exit_time=r, exit_by=ROUND_GATE, delivered=False)
        return True
