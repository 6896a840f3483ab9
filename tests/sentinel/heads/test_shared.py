"""The shared encoder's AUROCs stand beside the pair's, on the same episodes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from made_episodes import made_episode, made_tasks

from sentinel.heads.config import ANSWERABILITY, CORRECTNESS, HEADS
from sentinel.heads.shared import beside
from sentinel.heads.snapshots import Snapshots, build


def made() -> Snapshots:
    tasks = {t["task_id"]: t for t in made_tasks()}
    episodes = [made_episode(t) for t in tasks.values()]
    return build(episodes, tasks, {e.episode_id: " n " in str(e.action) for e in episodes})[0]


def scores(snapshots: Snapshots, logits: dict[str, np.ndarray]) -> pa.Table:
    rows = [
        {"episode_id": e, "t": int(t), "head": head, "logit": None if np.isnan(x) else float(x)}
        for head, values in logits.items()
        for e, t, x in zip(snapshots.episode_id, snapshots.t, values, strict=True)
    ]
    return pa.Table.from_pylist(rows)


def test_auroc_of_both_on_the_episodes_that_both_scored() -> None:
    snapshots = made()
    right = {head: np.nan_to_num(snapshots.target(head), nan=0.5) for head in HEADS}
    last = np.append(snapshots.episode_id[1:] != snapshots.episode_id[:-1], True)
    wrong_before_the_end = {h: np.where(last, x, 1 - x) for h, x in right.items()}
    shared = {head: -x for head, x in right.items()}
    lost = snapshots.episode_id == snapshots.episode_id[(snapshots.pool == "train")][0]
    shared[ANSWERABILITY] = np.where(lost, np.nan, shared[ANSWERABILITY])
    rows = beside(snapshots, scores(snapshots, wrong_before_the_end), scores(snapshots, shared))
    assert [r["head"] for r in rows] == list(HEADS)
    for row in rows:
        head = row["head"]
        train = last & (snapshots.pool == "train") & ~np.isnan(snapshots.target(head))
        assert row["n"] == train.sum() - (head == ANSWERABILITY)
        assert (row["auroc"], row["auroc_shared"], row["delta"]) == (1.0, 0.0, -1.0)


def test_what_was_not_scored_is_undefined() -> None:
    snapshots = made()
    pair = {head: np.zeros(len(snapshots)) for head in HEADS}
    nothing = {CORRECTNESS: np.full(len(snapshots), np.nan)}
    rows = beside(snapshots, scores(snapshots, pair), scores(snapshots, nothing))
    assert [(r["n"], r["auroc"], r["delta"]) for r in rows] == [(0, None, None)] * 2
    again = beside(snapshots, scores(snapshots, pair), scores(snapshots, pair))
    assert [r["delta"] for r in again] == pytest.approx([0.0, 0.0])
