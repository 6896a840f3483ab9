"""Which layer a cell's probes read: a sweep over layers on a share of the tasks (the abort cascade,
"Scorers").

The share is drawn by seed before any outcome is looked at. In paper mode it is of all tasks of the
cell; in strict mode of the fit tasks only, because a layer chosen on other tasks would have seen
what the guarantee is tested on. Each layer's AUROC is out of fold, and the layer with the largest
mean over rounds is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.bootstrap import auroc
from sentinel.errors import UserError
from sentinel.probes.logistic import fit_logistic
from sentinel.probes.parts import Part, cross_fit, strict, unfit

_STREAM = 11
"""Keeps the draw of the share apart from that of pools and folds under one seed."""


@dataclass(frozen=True)
class Sample:
    """The episodes of one mode's sweep, E of them, sorted by id, with their outcomes and folds."""

    mode: str
    episode: tuple[str, ...]
    success: tuple[bool | None, ...]
    parts: tuple[Part, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LayerAuc:
    """Out-of-fold AUROC of one layer at one round over `episodes`, of which `failures` failed.

    `auc` is None where it is undefined: nobody scored, or all ended alike.
    """

    layer: int
    round: int
    auc: float | None
    episodes: int
    failures: int


def draw(
    mode: str,
    episode: Sequence[str],
    unit: Sequence[str],
    success: Sequence[bool | None],
    share: float | str,
    seed: int,
    noun: str = "task",
) -> Sample:
    """The episodes of a share of the tasks (`unit`, named by `noun`), and their five folds.

    Takes the first ⌈share · n⌉ of the tasks in an order shuffled with PCG64; in strict mode of the
    fit tasks, in the same order, so that the two modes share as many episodes as they can. The
    arguments are columns over all episodes of the cell, in any order.

    Raises UserError where no folds can be drawn that each hold a success and a failure.
    """
    order = np.argsort(np.asarray(episode, dtype=str), kind="stable")
    units = np.array([unit[i] for i in order], dtype=object)
    outcomes = [success[i] for i in order]
    names = sorted(set(unit))
    np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM]))).shuffle(names)
    if mode == "strict":
        known = np.array([y is not None for y in outcomes], dtype=bool)
        place = strict(units, known, seed).pool
        fit = {u for u, pool in zip(units, place, strict=True) if pool == "fit"}
        names = [name for name in names if name in fit]
    taken = set(names[: -int(-Fraction(str(share)) * len(names) // 1)])
    kept = [i for i, u in enumerate(units) if u in taken]
    chosen = tuple(str(episode[order[i]]) for i in kept)
    outcome = tuple(outcomes[i] for i in kept)
    try:
        cut = cross_fit(chosen, units[kept], outcome, seed, noun)
    except UserError as error:
        raise UserError(
            f"layer sweep in {mode} mode on {len(taken)} {noun}s: {error.cause}",
            "raise activations.sweep_share, or name the layer: activations.layers=[K]",
        ) from error
    facts = {**cut.facts, "tasks": len(taken), "episodes": len(chosen)}
    return Sample(mode, chosen, outcome, cut.parts, facts)


def measure(
    sample: Sample,
    layer: int,
    vectors: Mapping[tuple[str, int], NDArray[np.float16]],
    rounds: int,
) -> list[LayerAuc]:
    """AUROC of a layer at rounds 1…`rounds`, from its vectors (d,) by (episode id, round).

    An episode without a vector at a round is not scored there, nor is a fold whose training
    episodes all ended alike.
    """
    found = []
    for r in range(1, rounds + 1):
        rows = [
            i
            for i, e in enumerate(sample.episode)
            if sample.success[i] is not None and (e, r) in vectors
        ]
        failed = np.array([sample.success[i] is False for i in rows], dtype=bool)
        scores = np.full(len(rows), np.nan)
        if rows:
            X = np.stack([vectors[sample.episode[i], r] for i in rows]).astype(np.float64)
            for part in sample.parts:
                train, apply = part.train[rows], part.apply[rows]
                if apply.any() and unfit(failed[train]) is None:
                    scores[apply] = fit_logistic(X[train], failed[train]).logit(X[apply])
        seen = ~np.isnan(scores)
        found.append(
            LayerAuc(layer, r, auroc(scores, failed), int(seen.sum()), int(failed[seen].sum()))
        )
    return found


def choose(measured: Iterable[LayerAuc]) -> int | None:
    """The layer with the largest mean AUROC over rounds, each weighted by its episodes.

    Ties go to the lowest layer; rounds without an AUROC count for nothing; None where no layer has
    any.

    >>> choose([LayerAuc(2, 1, 0.7, 10, 5), LayerAuc(1, 1, 0.7, 10, 5), LayerAuc(3, 1, None, 0, 0)])
    1
    """
    total: dict[int, float] = {}
    weight: dict[int, int] = {}
    for one in sorted(measured, key=lambda m: (m.layer, m.round)):
        if one.auc is not None:
            total[one.layer] = total.get(one.layer, 0.0) + one.episodes * one.auc
            weight[one.layer] = weight.get(one.layer, 0) + one.episodes
    if not total:
        return None
    return min(total, key=lambda k: (-total[k] / weight[k], k))
