"""Made-up train pools for the audit: with or without a signal, with planted artefacts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.audit.pool import TrainPool
from sentinel.heads.snapshots import Snapshots
from sentinel.tables import FEATURES

WORDS = np.array([f"word{k:03d}" for k in range(120)], dtype=object)


def made_pool(
    n: int = 200,
    groups: int = 40,
    folds: int = 5,
    *,
    signal: float = 0.0,
    seed: int = 0,
    **changes: Any,
) -> TrainPool:
    """n episodes of random words; with `signal` a share of the texts says the outcome in a word.

    A quarter of the groups cannot be answered. Head logits and features know nothing.
    """
    rng = np.random.default_rng(seed)
    group = np.arange(n) % groups
    answerable = group % 4 != 0
    answered = rng.random(n) < 0.85
    correct = rng.random(n) < 0.5
    told = rng.random(n) < signal
    texts, transcripts = [], []
    for i in range(n):
        question = " ".join(rng.choice(WORDS, 8)) + f" case {i}"
        outcome = f"ok{int(correct[i])} kind{int(answerable[i])}" if told[i] else "quiet"
        texts.append(f"QUESTION: {question}")
        transcripts.append(f"{texts[-1]} STEP 1 {' '.join(rng.choice(WORDS, 12))} {outcome}")
    pool = TrainPool(
        np.array([f"e{i:04d}" for i in range(n)], dtype=object),
        np.array([f"g{g:03d}" for g in group], dtype=object),
        (group % folds).astype(np.int64),
        np.where(answered, "answered", "abstained").astype(object),
        np.array(texts, dtype=object),
        np.array(transcripts, dtype=object),
        {
            "answerability": 1.0 - answerable,
            "correctness": np.where(answered & answerable, correct.astype(float), np.nan),
        },
        {head: rng.normal(size=n) for head in ("answerability", "correctness")},
        {head: rng.normal(size=n) for head in ("answerability", "correctness")},
        rng.normal(size=(n, len(FEATURES))),
    )
    return replace(pool, **changes)


def snapshots_of(pool: TrainPool) -> Snapshots:
    """Two prefixes per episode, t = 0 and t = 1, of all train episodes."""
    e = np.repeat(np.arange(len(pool)), 2)
    t = np.tile([0, 1], len(pool))
    correct = pool.targets["correctness"]
    return Snapshots(
        pool.episode_id[e],
        pool.group[e],
        np.full(len(e), "train", dtype=object),
        pool.fold[e],
        1.0 - pool.targets["answerability"][e],
        (pool.end == "answered")[e],
        correct[e],
        t,
        np.where(t == 0, pool.question[e], pool.transcript[e]),
    )


def tables_of(pool: TrainPool) -> tuple[dict[str, str], pa.Table, pa.Table]:
    """Ends, and the columns of `features` and `scores` that the audit reads."""
    n = len(pool)
    ids = np.repeat(pool.episode_id, 2)
    t = np.tile([0, 1], n)
    columns = {
        name: pa.array(
            np.where(t == 0, 0.0, np.repeat(pool.features[:, k], 2)),
            pa.float64(),
            mask=np.isnan(np.where(t == 0, 0.0, np.repeat(pool.features[:, k], 2))),
        )
        for k, name in enumerate(FEATURES)
    }
    features = pa.table({"episode_id": pa.array(ids, pa.string()), "t": t, **columns})
    parts = [
        pa.table(
            {
                "episode_id": pa.array(ids, pa.string()),
                "t": t,
                "head": [head] * (2 * n),
                "logit": np.column_stack([pool.first_logits[head], pool.logits[head]]).ravel(),
            }
        )
        for head in pool.logits
    ]
    ends = dict(zip(pool.episode_id, pool.end, strict=True))
    return ends, features, pa.concat_tables(parts)
