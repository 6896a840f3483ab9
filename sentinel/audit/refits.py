"""The heads' own training, again: on permuted labels (it must find nothing) and with other seeds.

`one_fold` is what a worker runs; `loop_rows` and `seed_rows` read the folds of a check together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.audit.measure import control, fold_mean, row
from sentinel.bootstrap import auroc
from sentinel.heads.config import ANSWERABILITY, HeadConfig, HeadFailure
from sentinel.heads.folds import fit_fold
from sentinel.heads.snapshots import Snapshots, plan

LOOP, SEEDS = "shuffled-loop", "seeds"
DETERMINISTIC = "off: a TF–IDF head is the same with every seed"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Fold:
    """One refitted fold: eligible episodes, their labels, their logits at T (k,)."""

    episode_id: NDArray[np.object_]
    positive: NDArray[np.bool_]
    logit: NDArray[np.float64]


def permuted(snapshots: Snapshots, head: str, seed: int) -> Snapshots:
    """The same prefixes with the outcomes of a head permuted over its eligible train episodes.

    Every prefix of an episode carries the same, permuted outcome; nothing else changes.
    """
    rows = np.flatnonzero((snapshots.pool == "train") & ~np.isnan(snapshots.target(head)))
    name = "answerable" if head == ANSWERABILITY else "correct"
    values = getattr(snapshots, name).copy()
    episodes, first, owner = np.unique(
        snapshots.episode_id[rows], return_index=True, return_inverse=True
    )
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = values[rows[first]][rng.permutation(len(episodes))]
    values[rows] = drawn[owner]
    return replace(snapshots, **{name: values})


def one_fold(
    snapshots: Snapshots,
    head: str,
    fold: int,
    config: HeadConfig,
    seed: int,
    *,
    shuffle: int | None = None,
    device: str = "cpu",
) -> Fold:
    """Fit a head on the other folds, exactly as the stage heads does, and read it at T of this one.

    `shuffle`: seed of a permutation of the labels. Logits are NaN where the other folds hold one
    class. Raises HeadFailure where a fit that was begun cannot go on.
    """
    read = snapshots if shuffle is None else permuted(snapshots, head, shuffle)
    last = np.ones(len(read), dtype=bool)
    last[:-1] = read.episode_id[1:] != read.episode_id[:-1]
    target = read.target(head)
    rows = np.flatnonzero((read.pool == "train") & (read.fold == fold) & last & ~np.isnan(target))
    logits = np.full(len(rows), np.nan)
    try:
        planned = plan(read, head, fold, validation=config.validation, seed=seed)
    except HeadFailure:
        return Fold(read.episode_id[rows], target[rows] > 0.5, logits)
    if len(rows):
        logits = fit_fold(read, replace(planned, score=rows), config, seed, device=device).logits
    return Fold(read.episode_id[rows], target[rows] > 0.5, np.asarray(logits))


def loop_row(head: str, variant: str, folds: Mapping[int, Fold]) -> dict[str, Any]:
    """The control's row from its folds."""
    fold = np.concatenate([np.full(len(f.logit), k) for k, f in folds.items()])
    logit, positive = _joined(list(folds.values()))
    return control(LOOP, head, variant, logit, positive, fold)


def seed_rows(head: str, seeds: Mapping[str, Mapping[int, Fold]]) -> list[dict[str, Any]]:
    """A row per seed (pooled out-of-fold AUROC at T) and their standard deviation, n − 1."""
    rows = []
    for name, folds in seeds.items():
        fold = np.concatenate([np.full(len(f.logit), k) for k, f in folds.items()])
        logit, positive = _joined(list(folds.values()))
        seen = ~np.isnan(logit)
        mean, known = fold_mean(logit[seen], positive[seen], fold[seen])
        rows.append(
            row(
                SEEDS, head, name,
                value=auroc(logit, positive), fold_mean=mean, folds=known,
                n=int(seen.sum()), positives=int(positive[seen].sum()),
                missing=int((~seen).sum()),
            )
        )  # fmt: skip
    values = [r["value"] for r in rows]
    known_all = all(v is not None for v in values)
    spread = float(np.std(values, ddof=1)) if known_all and len(values) > 1 else None
    assert spread is None or math.isfinite(spread)
    note = None if spread is not None else "undefined: some seed has no AUROC"
    rows.append(row("seed-sd", head, value=spread, n=len(values), note=note))
    return rows


def _joined(folds: Sequence[Fold]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return np.concatenate([f.logit for f in folds]), np.concatenate([f.positive for f in folds])
