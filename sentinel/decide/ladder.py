"""The ladder on one pool: scores, coverage, savings, each with its cluster interval (Tables 1, 4,
8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from sentinel.bootstrap import (
    Interval,
    auroc_interval,
    cluster_weights,
    group_index,
    group_sums,
    mean_intervals,
    percentile,
    ratio_interval,
)
from sentinel.decide.play import CHOW, GATE, STOP, Decisions
from sentinel.decide.policy import Policy
from sentinel.decide.table import Bools, Floats, Ints, Prefixes

Statistic = tuple[str, str, str]
"""Statistic, system and stratum, as the table `intervals` names them."""


@dataclass(frozen=True)
class Clusters:
    """Groups of a pool with shared bootstrap weights, so that all comparisons are paired.

    `index` (E,) group of each episode, `weights` (resamples, G); `draws` resampled AUROCs by
    (statistic, system, stratum) where they were computed block by block, see `decide.blocks`.
    """

    names: list[str]
    index: Ints
    weights: Floats
    draws: Mapping[Statistic, Floats] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        pool: Prefixes,
        resamples: int,
        seed: int,
        draws: Mapping[Statistic, Floats] | None = None,
    ) -> Clusters:
        """Draw the weights once for a pool."""
        names, index = group_index(pool.group)
        return cls(names, index, cluster_weights(len(names), resamples, seed), draws or {})

    def auroc(self, name: Statistic, scores: Floats, positive: Bools, index: Ints) -> Interval:
        """Interval of one AUROC over the rows given, `index` their groups."""
        return auroc_interval(scores, positive, index, self.weights, self.draws.get(name))

    def sums(self, values: Any) -> Floats:
        """Group sums (G,) of per-episode values."""
        return group_sums(values, self.index, len(self.names))

    @property
    def size(self) -> Floats:
        """Episodes per group, (G,)."""
        return self.sums(np.ones(len(self.index)))


def score_intervals(
    pool: Prefixes, clusters: Clusters, played: Sequence[Decisions], vanilla: Sequence[Decisions]
) -> list[dict[str, Interval]]:
    """Paired intervals of RS, RS − always-abstain and RS − vanilla, per system and λ.

    All of them are one matrix product. Where nothing was delivered the system is always-abstain,
    which is no certainty about a difference to it.
    """
    refuse = (~pool.answerable).astype(np.int64)  # always-abstain gains exactly these
    names = ("rs", "rs_minus_abstain", "rs_minus_vanilla")
    columns, groups = [], []
    for d, v in zip(played, vanilla, strict=True):
        for name, gain, loss in zip(
            names,
            (d.gain, d.gain - refuse, d.gain - v.gain),
            (d.loss, d.loss, d.loss - v.loss),
            strict=True,
        ):
            gains, losses = clusters.sums(gain), clusters.sums(loss)
            columns.append(gains - float(d.lam) * losses)
            all_groups = name == "rs"
            groups.append(len(clusters.names) if all_groups else carrying(gains, losses, d.lam))
    found = mean_intervals(
        np.column_stack(columns), clusters.size, clusters.weights, n=len(pool), clusters=groups
    )
    rows = [dict(zip(names, found[3 * i : 3 * i + 3], strict=True)) for i in range(len(played))]
    for row, d in zip(rows, played, strict=True):
        if not d.delivered.any():
            row["rs_minus_abstain"] = _without(row["rs_minus_abstain"])
    return rows


def carrying(gains: Floats, losses: Floats, lam: str) -> int:
    """Groups whose summed difference gain − λ·loss is not 0, in exact arithmetic."""
    ratio = Fraction(lam)
    return sum(
        ratio.denominator * int(g) != ratio.numerator * int(b)
        for g, b in zip(gains, losses, strict=True)
    )


def score(decisions: Decisions) -> float | None:
    """RS(λ), the mean over the pool: exact until the last division; None for an empty pool."""
    n = len(decisions.gain)
    if not n:
        return None
    total = int(decisions.gain.sum()) - Fraction(decisions.lam) * int(decisions.loss.sum())
    return float(total / n)


def rung(
    policy: Policy,
    pool: Prefixes,
    clusters: Clusters,
    decisions: Decisions,
    scores: Mapping[str, Interval],
    seconds_per_step: float | None,
) -> tuple[dict[str, Any], dict[str, Interval]]:
    """One system at one λ: its row of the ladder, and its intervals by statistic.

    `scores` are its intervals from `score_intervals`.
    """
    delivered = clusters.sums(decisions.delivered)
    right = clusters.sums(decisions.delivered & pool.good)
    intervals = {
        **scores,
        "coverage": ratio_interval(delivered, clusters.size, clusters.weights, n=len(pool)),
        "accuracy": ratio_interval(
            right, delivered, clusters.weights, n=int(decisions.delivered.sum())
        ),
        "steps_saved": ratio_interval(
            clusters.sums(pool.T - decisions.exit_time),
            clusters.sums(pool.T),
            clusters.weights,
            n=len(pool),
        ),
    }
    n_delivered = int(decisions.delivered.sum())
    n_right = int((decisions.delivered & pool.good).sum())
    row = {
        "system": decisions.system,
        "lam": decisions.lam,
        "n": len(pool),
        "rs": score(decisions),
        "gain": int(decisions.gain.sum()),
        "loss": int(decisions.loss.sum()),
        "delivered": n_delivered,
        "delivered_correct": n_right,
        "delivered_unanswerable": int((decisions.delivered & ~pool.answerable).sum()),
        "coverage": n_delivered / len(pool) if len(pool) else None,
        "accuracy": n_right / n_delivered if n_delivered else None,
        "exits": {
            name: int((decisions.exit_by == code).sum())
            for name, code in (("gate", GATE), ("stop", STOP), ("chow", CHOW))
        },
        "dagger": intervals["rs_minus_abstain"].dagger,
        "intervals": {name: interval.to_dict() for name, interval in intervals.items()},
        **savings(pool, decisions, seconds_per_step),
        "monitor_passes": monitor_passes(policy, pool, decisions),
    }
    return row, intervals


def _without(interval: Interval) -> Interval:
    """No answer was delivered: the system is always-abstain, which is no certainty about a
    difference."""
    return percentile(interval.point, np.zeros(0), interval.resamples, interval.n, 0)


def savings(pool: Prefixes, decisions: Decisions, seconds_per_step: float | None) -> dict[str, Any]:
    """Steps, generated tokens and seconds that were never spent; monitor passes are not subtracted.

    Time is steps saved × seconds per step of a *serial* timed rerun; the seconds logged by the run
    itself, where episodes ran at the same time, stand beside it under their own name.
    """
    steps, total = int((pool.T - decisions.exit_time).sum()), int(pool.T.sum())
    at = pool.start + decisions.exit_time

    def spent(values: Floats | None) -> dict[str, Any] | None:
        if values is None:
            return None
        whole = float(values[pool.end].sum())
        saved = float((values[pool.end] - values[at]).sum())
        return {"saved": saved, "total": whole, "share": saved / whole if whole else None}

    serial = None
    if seconds_per_step is not None:
        serial = {"seconds_per_step": seconds_per_step, "saved": steps * seconds_per_step}
    return {
        "steps": {"saved": steps, "total": total, "share": steps / total if total else None},
        "tokens": spent(pool.tokens),
        "seconds_serial": serial,
        "seconds_concurrent": spent(pool.seconds),
    }


def monitor_passes(policy: Policy, pool: Prefixes, decisions: Decisions) -> dict[str, int]:
    """Prefixes that each head had to read for these decisions."""
    e, by, T = decisions.exit_time, decisions.exit_by, pool.T
    gate = decisions.system in ("gate", "full", "early-exit", "exact-bar")
    chow = decisions.system in ("full", "early-exit", "chow", "exact-bar")
    answerability = int((e + 1).sum()) if gate else 0
    correctness = 0
    if decisions.system == "early-exit":
        # Read at t = 0…T − 1 until an exit; where the gate fires first, not at that t.
        correctness += int((np.minimum(e, T - 1) + 1 - ((by == GATE) & (e < T))).sum())
    if chow:
        correctness += int((pool.answered & (by != GATE) & (by != STOP)).sum())
    return {"answerability": answerability, "correctness": correctness}


def reweighted(
    pool: Prefixes,
    clusters: Clusters,
    systems: dict[str, Decisions],
    share: str,
) -> dict[str, Interval]:
    """RS at a share π of unanswerable questions minus always-abstain (= π), decisions frozen.

    RS_π = π·mean over unanswerable + (1 − π)·mean over answerable; both means are recomputed in
    each resample, and a resample without one of the kinds is dropped. Also the gate's share of the
    gain, (gate − vanilla)/(full − vanilla), under the key "gate_share".
    """
    pi = float(share)
    yes, no = pool.answerable, ~pool.answerable
    weights = clusters.weights
    n_yes, n_no = clusters.sums(yes), clusters.sums(no)
    draws_yes, draws_no = weights @ n_yes, weights @ n_no
    kept = (draws_yes > 0) & (draws_no > 0)
    whole = yes.any() and no.any()

    def value(decisions: Decisions) -> tuple[float | None, Floats]:
        r_yes = clusters.sums(np.where(yes, decisions.reward, 0.0))
        r_no = clusters.sums(np.where(no, decisions.reward, 0.0))
        if not whole:
            return None, np.zeros(0)
        point = pi * r_no.sum() / n_no.sum() + (1 - pi) * r_yes.sum() / n_yes.sum()
        w = weights[kept]
        draws = pi * (w @ r_no) / draws_no[kept] + (1 - pi) * (w @ r_yes) / draws_yes[kept]
        return float(point), draws

    values = {name: value(decisions) for name, decisions in systems.items()}
    found = {}
    for name, decisions in systems.items():
        point, draws = values[name]
        above = None if point is None else point - pi
        gains = clusters.sums(decisions.gain - no.astype(np.int64))
        groups = carrying(gains, clusters.sums(decisions.loss), decisions.lam)
        found[name] = percentile(above, draws - pi, len(weights), len(pool), groups)
        if not decisions.delivered.any():
            found[name] = _without(found[name])
    found["gate_share"] = share_of_gain(values, clusters, len(pool))
    return found


def share_of_gain(
    values: dict[str, tuple[float | None, Floats]], clusters: Clusters, n: int
) -> Interval:
    """(gate − vanilla)/(full − vanilla), point and resamples; undefined where full equals
    vanilla."""
    (vanilla, v), (gate, g), (full, f) = (values[name] for name in ("vanilla", "gate", "full"))
    point = None
    if vanilla is not None and gate is not None and full is not None and full != vanilla:
        point = (gate - vanilla) / (full - vanilla)
    gain = f - v
    kept = gain != 0
    draws = (g - v)[kept] / gain[kept]
    return percentile(point, draws, len(clusters.weights), n, len(clusters.names))


def natural(clusters: Clusters, decisions: Decisions) -> tuple[float | None, Floats]:
    """RS on the pool as it is, with its resamples, in the form `share_of_gain` takes."""
    if not clusters.names:
        return None, np.zeros(0)
    size = clusters.weights @ clusters.size
    return score(decisions), (clusters.weights @ clusters.sums(decisions.reward)) / size


__all__ = ["Clusters", "natural", "reweighted", "rung", "score", "score_intervals", "share_of_gain"]
