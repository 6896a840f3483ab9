"""The Sentinel correctness head as a scorer of rounds: f_r = 1 − sigmoid(its logit).

The head reads the text through action r, before the feedback, and every such text carries its
episode's outcome with equal weight; it is fitted as everywhere (`sentinel.heads`), on the cascade's
own parts, and on environments and text-to-SQL alike its target is the cascade's success.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sentinel.heads.config import CORRECTNESS, HeadConfig, HeadFailure
from sentinel.heads.snapshots import Snapshots
from sentinel.probes.cell import Cell
from sentinel.probes.logistic import sigmoid
from sentinel.probes.parts import Split

if TYPE_CHECKING:
    from sentinel.probes.scorers import ScorerConfig


def head_scores(
    cell: Cell, cut: Split, config: ScorerConfig
) -> tuple[list[NDArray[np.float64]], list[list[str]]]:
    """Failure probabilities (E,) per round, NaN where there is none, and what went wrong.

    One head per part serves all rounds; a part whose head cannot be fitted leaves its episodes
    without scores at every round.
    """
    from sentinel.heads.folds import fit_fold
    from sentinel.heads.snapshots import plan

    snapshots, owner = _snapshots(cell, cut, config.after_feedback)
    settings = HeadConfig.of(config.heads)
    out = np.full((len(cell), cell.gates), np.nan)
    reasons = []
    for k, part in enumerate(cut.parts):
        fold = None if cut.mode == "strict" else k
        seed = zlib.crc32(f"{config.seed}/{part.name}".encode())
        try:
            planned = plan(snapshots, CORRECTNESS, fold, validation=settings.validation, seed=seed)
            folder = None if config.folder is None else config.folder / f"part-{k}"
            found = fit_fold(
                snapshots, planned, settings, seed, folder=folder, device=config.device
            )
        except HeadFailure as failure:
            reasons.append(f"{part.name}: {failure}")
            continue
        out[owner[found.rows], snapshots.t[found.rows] - 1] = sigmoid(-found.logits)
    return [out[:, r] for r in range(cell.gates)], [list(reasons) for _ in range(cell.gates)]


def _snapshots(cell: Cell, cut: Split, after_feedback: bool) -> tuple[Snapshots, NDArray[np.intp]]:
    """One row per episode and round alive, and the episode of each row, (n,)."""
    fold = np.full(len(cell), -1, dtype=np.int64)
    trains = np.zeros(len(cell), dtype=bool)
    for k, part in enumerate(cut.parts):
        trains |= part.train
        if cut.mode == "paper":
            fold[part.apply] = k
    # In the words of the heads: "train" rows are fitted on and cross-scored, "calibration" ones
    # scored by the final head.
    pool = np.where((fold >= 0) | (trains if cut.mode == "strict" else False), "train", "other")
    if cut.mode == "strict":
        pool = np.where(cut.parts[0].apply, "calibration", pool)
    alive = np.stack([cell.alive(r, after_feedback) for r in range(1, cell.gates + 1)], axis=1)
    owner, at = np.nonzero(alive)
    correct = np.array([np.nan if y is None else float(y) for y in cell.success])
    rows = len(owner)
    return (
        Snapshots(
            cell.episode[owner],
            cell.task[owner],
            pool.astype(object)[owner],
            fold[owner],
            np.full(rows, np.nan),
            np.ones(rows, dtype=bool),
            correct[owner],
            at.astype(np.int64) + 1,
            np.array([cell.texts[e][r] for e, r in zip(owner, at, strict=True)], dtype=object),
        ),
        owner,
    )
