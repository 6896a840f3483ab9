"""Who trains a scorer and whom it scores: the two modes of the abort cascade (the paper, "Splits").

*paper*: stratified group folds drawn once per cell over all its episodes, every episode scored by a
model that never saw its task. *strict*: models see fit tasks only and score the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.errors import UserError
from sentinel.splits import CASCADE_POOLS, STRICT_SHARES, Pool, make_folds, split_tasks

MODES = ("strict", "paper")
FOLDS = 5
Bools = NDArray[np.bool_]
Texts = NDArray[np.object_]


@dataclass(frozen=True)
class Part:
    """One model of every round: who trains it and whom it scores, masks (E,)."""

    name: str
    train: Bools
    apply: Bools


@dataclass(frozen=True)
class Split:
    """The parts of one cell in one mode; `pool` per episode, None in paper mode; `facts` JSON-able.

    `judged` (E,): the episodes on which an AUROC says something about unseen tasks.
    """

    mode: str
    parts: tuple[Part, ...]
    pool: tuple[str | None, ...]
    judged: Bools
    facts: dict[str, Any]

    @property
    def auroc_on(self) -> str:
        """In words, which episodes `judged` names."""
        return _JUDGED[self.mode]


_JUDGED = {"paper": "all episodes, out of fold, pooled", "strict": "calibration tasks"}


def strict(unit: Texts, known: Bools, seed: int) -> Split:
    """One part: episodes with a known outcome of the fit tasks (or groups) train, the rest is
    scored. AUROCs are judged on calibration tasks. Raises UserError where a pool stays empty."""
    pools = split_tasks(set(unit), STRICT_SHARES, seed)
    place = tuple(str(pools[t]) for t in unit)
    fit = np.array([p == Pool.FIT for p in place], dtype=bool)
    judged = np.array([p == Pool.CALIBRATION for p in place], dtype=bool)
    size = Counter(pools.values())
    facts = {"pools": {str(p): size[p] for p in CASCADE_POOLS}}
    return Split("strict", (Part("fit tasks", fit & known, ~fit),), place, judged, facts)


def cross_fit(
    episode: Sequence[str], unit: Texts, success: Sequence[bool | None], seed: int, noun: str
) -> Split:
    """Five parts, one per fold; a unit without any known outcome is in none and gets no score.

    A seed that gives a fold with one class is passed over and recorded; UserError where no seed
    serves. `noun` names a unit in that message.
    """
    unit_of = dict(zip(episode, unit, strict=True))
    outcome = {e: y for e, y in zip(episode, success, strict=True) if y is not None}
    try:
        folds = make_folds({e: unit_of[e] for e in outcome}, outcome, FOLDS, seed)
    except UserError as error:
        holding = {y: len({unit_of[e] for e in outcome if outcome[e] is y}) for y in (True, False)}
        raise UserError(
            f"no {FOLDS} folds by {noun} that each hold a success and a failure: of "
            f"{len({unit_of[e] for e in outcome})} {noun}s {holding[True]} hold successes, "
            f"{holding[False]} failures",
            f"use more {noun}s",
        ) from error
    of_unit = {unit_of[e]: folds[e] for e in outcome}
    fold = np.array([of_unit.get(u, -1) for u in unit], dtype=np.int64)
    known = np.array([y is not None for y in success], dtype=bool)
    parts = tuple(
        Part(f"fold {k + 1}", known & (fold != k) & (fold >= 0), fold == k) for k in range(FOLDS)
    )
    facts = {"folds": FOLDS, "fold_seed": folds.seed, "refused_seeds": list(folds.refused_seeds)}
    return Split("paper", parts, (None,) * len(unit), np.ones(len(unit), dtype=bool), facts)


def split(
    mode: str,
    episode: Sequence[str],
    unit: Texts,
    success: Sequence[bool | None],
    seed: int,
    noun: str = "task",
) -> Split:
    """The parts of a mode; see `strict` and `cross_fit`."""
    if mode == "paper":
        return cross_fit(episode, unit, success, seed, noun)
    return strict(unit, np.array([y is not None for y in success], dtype=bool), seed)


def unfit(failed: Bools) -> str | None:
    """Why these training outcomes fit no model; None where they do."""
    if not len(failed):
        return "no episode to train on"
    if failed.all() or not failed.any():
        return f"all {len(failed)} training episodes {'failed' if failed[0] else 'succeeded'}"
    return None


def round_facts(
    r: int,
    alive: Bools,
    known: Bools,
    failed: Bools,
    column: NDArray[np.float64],
    cut: Split,
    reasons: Sequence[str],
) -> dict[str, Any]:
    """What is recorded of round r: how many were alive and scored, the AUROC, and what went wrong.

    `column` (E,) scores, NaN where there is none; `without_score` counts episodes alive that should
    have one.
    """
    from sentinel.bootstrap import auroc

    rows = alive & known & cut.judged & ~np.isnan(column)
    meant = np.zeros(len(alive), dtype=bool)
    for part in cut.parts:
        meant |= part.apply
    return {
        "round": r,
        "alive": int((alive & known).sum()),
        "failures": int((alive & known & failed).sum()),
        "auroc": auroc(column[rows], failed[rows]) if rows.any() else None,
        "auroc_n": int(rows.sum()),
        "without_score": int((alive & meant & np.isnan(column)).sum()),
        "reasons": list(reasons),
    }
