"""Writes a small, seeded `prefix_scores` table (`python small_prefix_scores.py FILE`)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

POOLS = ("train", "calibration", "heldout")


def table(seed: int = 0, groups: int = 60, per_group: int = 6) -> pa.Table:
    """Episodes of 1–4 turns in groups; scores that know something about the outcome."""
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        for item in range(per_group):
            answerable = group % 10 != 0
            answered = bool(rng.random() < 0.8)
            right = answered and answerable and bool(rng.random() < 0.6)
            turns = int(rng.integers(1, 5))
            for t in range(turns + 1):
                sure = t / turns
                rows.append(
                    {
                        "episode_id": f"w/a/q{group:03}-{item}/0",
                        "group": f"g{group:03}",
                        "pool": POOLS[(group // 10) % 3],
                        "t": t,
                        "T": turns,
                        "answerable": answerable,
                        "answered": answered,
                        "correct": right if answered else None,
                        "p_answerable": _sigmoid(3 * answerable + rng.normal(0, 1)),
                        "p_correct": _sigmoid((4 * right - 2) * sure + rng.normal(0, 1)),
                    }
                )
    return pa.Table.from_pylist(rows)


def _sigmoid(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


if __name__ == "__main__":
    pq.write_table(table(), Path(sys.argv[1]))
