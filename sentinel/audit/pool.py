"""The train pool as the audit reads it: one row per episode, at t = 0 and at t = T."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentinel.heads.config import HEADS
from sentinel.heads.snapshots import Snapshots
from sentinel.tables import FEATURES

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TrainPool:
    """E train episodes with an outcome, ordered by id.

    `targets`: head → (E,) 1, 0, or NaN where the episode is not eligible for that head;
    `logits`: head → (E,) out-of-fold logit at T, NaN without one; `first_logits`: at t = 0.
    `features` (E, 10) at T, NaN is missing. `question` and `transcript` are the renderings at
    t = 0 and t = T, `end` how the episode ended.
    """

    episode_id: NDArray[np.object_]
    group: NDArray[np.object_]
    fold: NDArray[np.int64]
    end: NDArray[np.object_]
    question: NDArray[np.object_]
    transcript: NDArray[np.object_]
    targets: Mapping[str, Floats]
    logits: Mapping[str, Floats]
    first_logits: Mapping[str, Floats]
    features: Floats

    def __len__(self) -> int:
        return len(self.fold)

    def eligible(self, head: str) -> Bools:
        """Episodes that a head is trained and read on, shape (E,)."""
        return ~np.isnan(self.targets[head])

    @property
    def judged(self) -> bool:
        """Whether the tasks say if they can be answered."""
        return bool(self.eligible(HEADS[0]).any())

    @classmethod
    def of(
        cls,
        snapshots: Snapshots,
        ends: Mapping[str, str],
        features: pa.Table,
        scores: pa.Table,
    ) -> TrainPool:
        """From the rendered prefixes, each episode's end, and the tables `features` and `scores`.

        The outcome is the snapshots' own: the primary label that the heads were trained on.
        """
        rows = np.flatnonzero((snapshots.pool == "train") & (snapshots.fold >= 0))
        ids = snapshots.episode_id[rows]
        new = np.ones(len(rows), dtype=bool)
        new[1:] = ids[1:] != ids[:-1]
        first = rows[new]
        last = rows[np.append(new[1:], True)] if len(rows) else rows
        episode, T = snapshots.episode_id[last], snapshots.t[last]
        return cls(
            episode,
            snapshots.group[last],
            np.asarray(snapshots.fold[last], dtype=np.int64),
            np.array([ends[e] for e in episode], dtype=object),
            snapshots.text[first],
            snapshots.text[last],
            {head: np.asarray(snapshots.target(head)[last]) for head in HEADS},
            {head: _at(_of_head(scores, head), ("logit",), episode, T)[:, 0] for head in HEADS},
            {head: _at(_of_head(scores, head), ("logit",), episode, 0 * T)[:, 0] for head in HEADS},
            _at(features, FEATURES, episode, T),
        )


def _of_head(scores: pa.Table, head: str) -> pa.Table:
    return scores.filter(pc.equal(scores.column("head"), head))


def _at(
    table: pa.Table, names: tuple[str, ...], episode: NDArray[np.object_], t: NDArray[np.int64]
) -> Floats:
    """Columns of the row of each episode at its t, shape (E, names); NaN where null or absent."""
    wanted = {(e, int(at)): i for i, (e, at) in enumerate(zip(episode, t, strict=True))}
    where = [
        wanted.get(key, -1)
        for key in zip(
            table.column("episode_id").to_pylist(), table.column("t").to_pylist(), strict=True
        )
    ]
    place = np.array(where, dtype=np.int64)
    out = np.full((len(episode), len(names)), np.nan)
    for k, name in enumerate(names):
        column = pc.fill_null(pc.cast(table.column(name), pa.float64()), float("nan"))
        values = np.asarray(column.to_numpy(), dtype=np.float64)
        out[place[place >= 0], k] = values[place >= 0]
    return out
