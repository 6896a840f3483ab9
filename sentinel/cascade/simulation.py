"""Draws from a known law: how often do the statements of a cascade turn out false?

The law is a mixture, so that an episode's scores are dependent over rounds, yet true survival and
recall of any thresholds have a closed form. Every draw has its own seed: blocks of draws give the
same rows wherever they run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from sentinel.cascade.certificate import certify
from sentinel.cascade.choose import choose, requirement
from sentinel.cascade.fixed_sequence import accept, chain, chain_thresholds, full_search
from sentinel.cascade.gates import GRID, fit_gates
from sentinel.cascade.play import play
from sentinel.cascade.policy import chosen
from sentinel.cascade.search import search
from sentinel.cascade.table import Bools, Floats, Rounds

METHODS = ("margin", "certificate", "fixed-sequence", "full-search")
Taus = Sequence[float | None]


@dataclass(frozen=True)
class Law:
    """Successes are of kind 0 (easy) or 1 (they look like failures), failures of kind 2.

    `share` P(success); `odd` P(kind 1 | success); `mean` of a score per kind at round 1, growing by
    `drift` per round, with unit variance; `ends` chance to end after a round, per kind.
    """

    share: float = 0.45
    odd: float = 0.25
    mean: tuple[float, float, float] = (-0.4, 0.9, 1.6)
    drift: tuple[float, float, float] = (-0.15, 0.0, 0.25)
    ends: tuple[float, float, float] = (0.25, 0.2, 0.08)
    gates: int = 6
    most: int = 20

    def draw(self, n: int, rng: np.random.Generator, per_task: int = 1) -> Rounds:
        """n tasks with `per_task` episodes; all rollouts of a task are of one kind."""
        kind = np.where(
            rng.random(n) < self.share, (rng.random(n) < self.odd).astype(np.int64), 2
        ).repeat(per_task)
        E = len(kind)
        T = np.minimum(rng.geometric(np.array(self.ends)[kind]), self.most)
        r = np.arange(self.gates)
        mean = np.array(self.mean)[kind][:, None] + np.array(self.drift)[kind][:, None] * r
        # Prompts grow, so later rounds cost more: c_r = 100 r + 20 r².
        score = rng.standard_normal((E, self.gates)) + mean
        cost = np.broadcast_to(_cost(r + 1), (E, self.gates))
        task = np.char.mod("t%07d", np.arange(n)).repeat(per_task)
        return Rounds.of(score, cost, _cost(T), T, kind < 2, task=task.tolist())

    def _kinds(self, thresholds: Taus) -> tuple[Floats, Floats]:
        """(chance to pass each gate (2, G), chance to be alive at it (2, G)), per kind."""
        tau = np.array([np.inf if t is None else t for t in thresholds])
        r = np.arange(self.gates)
        mean = np.array(self.mean[:2])[:, None] + np.array(self.drift[:2])[:, None] * r
        alive = (1 - np.array(self.ends[:2])[:, None]) ** r
        return ndtr(tau - mean), alive

    def survival(self, thresholds: Taus) -> Floats:
        """True share of successes alive at each gate that pass it alone, (G,)."""
        passes, alive = self._kinds(thresholds)
        weight = np.array([1 - self.odd, self.odd])[:, None] * alive
        return np.asarray((weight * passes).sum(axis=0) / weight.sum(axis=0))

    def recall(self, thresholds: Taus) -> float:
        """True share of successes that survive every gate."""
        passes, alive = self._kinds(thresholds)
        # Ends exactly at round r, or goes past the last gate; both pass the gates up to there.
        reach = np.cumprod(passes, axis=1)
        ends = alive - np.column_stack([alive[:, 1:], np.zeros(2)])
        kinds = (ends * reach).sum(axis=1)
        return float(np.array([1 - self.odd, self.odd]) @ kinds)


def _cost(r: np.ndarray) -> np.ndarray:
    return 100 * r + 20 * r**2


@dataclass(frozen=True)
class Simulated:
    """D draws. `gate_broken` (D, G, B): true survival below the budget. Per method in METHODS:
    `deployed`, `recall`, `savings` (D, 4); what is not deployed is the no-op.
    """

    grid: tuple[str, ...]
    target: float
    gate_broken: Bools
    deployed: Bools
    recall: Floats
    savings: Floats

    @property
    def violated(self) -> Bools:
        """Deployed **and** true recall below the target, (D, 4)."""
        return np.asarray(self.deployed & (self.recall < self.target))

    def rates(self) -> dict[str, dict[str, float]]:
        """Per method the share of draws violated and deployed, and the mean savings."""
        return {
            name: {
                "violated": float(self.violated[:, i].mean()),
                "deployed": float(self.deployed[:, i].mean()),
                "savings": float(self.savings[:, i].mean()),
            }
            for i, name in enumerate(METHODS)
        }


def tolerance(draws: int, alpha: float = 0.05) -> float:
    """α + 3√(α(1−α)/draws): what a rate of at most α may show in so many draws."""
    return alpha + 3 * math.sqrt(alpha * (1 - alpha) / draws)


def simulate(
    law: Law,
    draws: Iterable[int],
    target: str = "0.9",
    *,
    seed: int = 0,
    tasks: int = 400,
    grid: tuple[str, ...] = GRID,
    alpha: str = "0.05",
    margin: str = "0.02",
) -> Simulated:
    """Run every method on the draws named by number, with `tasks` tasks in each sample.

    One episode per task. Calibration, validation and certification are drawn anew each time;
    savings are read on one large test sample shared by all draws.
    """
    level = Fraction(alpha)
    test = law.draw(4000, np.random.default_rng([seed, 2**31]))
    asked = requirement(target, margin)
    none = chosen_nothing(law)
    broken, deployed, recall, savings = [], [], [], []
    for number in draws:
        rng = np.random.default_rng([seed, number])
        calibration, validation, certification = (law.draw(tasks, rng) for _ in range(3))
        gates = fit_gates(calibration, grid, alpha)
        broken.append(
            np.column_stack(
                [law.survival(gates.values[:, b].tolist()) < float(t) for b, t in enumerate(grid)]
            )
        )
        found = search(validation, gates)
        choice = choose(found, asked.successes(found.successes))
        plain = chosen(gates, None if choice.index is None else found.vector(choice.index))
        kept = int((play(plain, certification).survives & certification.success).sum())
        passed = certify(kept, certification.successes, target, level).passed
        links = chain(calibration, gates)
        reached = accept(links, gates, validation, target, level)
        full, _ = full_search(found, gates, target, level)
        taus: list[Taus] = [
            plain,
            plain if passed else none,
            chain_thresholds(gates, links[reached.position]),
            chosen(gates, None if full.index is None else found.vector(full.index)),
        ]
        deployed.append([any(t is not None for t in tau) for tau in taus])
        recall.append([law.recall(tau) for tau in taus])
        savings.append([int(play(tau, test).saved.sum()) / int(test.cost.sum()) for tau in taus])
    return Simulated(
        grid,
        float(target),
        np.array(broken),
        np.array(deployed),
        np.array(recall),
        np.array(savings),
    )


def chosen_nothing(law: Law) -> tuple[None, ...]:
    """The no-op's thresholds."""
    return (None,) * law.gates


def clustered(
    law: Law,
    draws: int,
    target: str = "0.9",
    *,
    seed: int = 0,
    tasks: int = 60,
    rollouts: int = 4,
    alpha: str = "0.05",
) -> tuple[float, float]:
    """How often a policy just below the target is certified: (all rollouts, one per task).

    All rollouts of a task are of one kind, so counting them as independent certifies too often;
    one rollout per task keeps the rate at most α.
    """
    rho, level = float(target), Fraction(alpha)
    tau = brentq(lambda t: law.recall([t] * law.gates) - (rho - 1e-9), -10, 10)
    hits = [0, 0]
    for number in range(draws):
        rounds = law.draw(tasks, np.random.default_rng([seed, number]), rollouts)
        kept = play([tau] * law.gates, rounds).survives & rounds.success
        for i, step in enumerate((1, rollouts)):
            n = int(rounds.success[::step].sum())
            hits[i] += certify(int(kept[::step].sum()), n, target, level).passed
    return hits[0] / draws, hits[1] / draws
