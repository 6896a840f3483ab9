"""The shared encoder beside the pair: out-of-fold AUROC of both, on the same episodes.

*(ours)* One encoder with two logits costs half; whether it ranks as well is a question of the data.
Its scores lie in a table of their own (`shared_scores`), which no decision reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.bootstrap import auroc
from sentinel.heads.config import HEADS
from sentinel.heads.snapshots import Snapshots


def beside(snapshots: Snapshots, pair: pa.Table, shared: pa.Table) -> list[dict[str, Any]]:
    """One row per head: `auroc` of the pair's head, `auroc_shared`, their difference, `n`.

    Out-of-fold, train pool, t = T, episodes that are eligible for the head and that both have
    scored; undefined is None. `pair` and `shared` are tables of the schema `scores`.
    """
    last = np.ones(len(snapshots), dtype=bool)
    last[:-1] = snapshots.episode_id[1:] != snapshots.episode_id[:-1]
    rows = []
    for head in HEADS:
        target = snapshots.target(head)
        keep = np.flatnonzero(last & (snapshots.pool == "train") & ~np.isnan(target))
        keys = list(zip(snapshots.episode_id[keep], snapshots.t[keep].tolist(), strict=True))
        found = [_logits(table, head, keys) for table in (pair, shared)]
        both = ~np.isnan(found).any(axis=0)
        positive = target[keep][both] > 0.5
        one, other = (auroc(logits[both], positive) for logits in found)
        rows.append(
            {
                "head": head,
                "n": int(both.sum()),
                "auroc": one,
                "auroc_shared": other,
                "delta": None if one is None or other is None else other - one,
            }
        )
    return rows


def _logits(table: pa.Table, head: str, keys: list[tuple[Any, int]]) -> np.ndarray:
    columns = table.select(["episode_id", "t", "head", "logit"]).to_pylist()
    known = {(r["episode_id"], r["t"]): r["logit"] for r in columns if r["head"] == head}
    values = [known.get(key) for key in keys]
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
