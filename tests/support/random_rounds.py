"""Small random episodes with ties, missing scores and gates that see few successes or none."""

from __future__ import annotations

from typing import Any

import numpy as np

from sentinel.cascade import Rounds


def episodes(
    rng: np.random.Generator, n: int, gates: int, levels: int = 12, share: float = 0.6
) -> list[dict[str, Any]]:
    """n episodes of 1 to gates + 2 rounds; scores from `levels` values, so that they tie."""
    missing = rng.choice([0.0, 0.0, 0.2])
    longest = int(rng.integers(1, gates + 3))
    values = np.round(rng.normal(size=levels), 1)
    out = []
    for _ in range(n):
        T = int(rng.integers(1, longest + 1))
        costs = np.cumsum(rng.integers(0, 40, max(T, 1)))
        success = bool(rng.random() < share)
        scores = [
            float("nan")
            if rng.random() < missing
            else float(rng.choice(values)) + 0.5 * (not success)
            for _ in range(min(T, gates))
        ]
        out.append(
            {
                "T": T,
                "success": success,
                "scores": scores,
                "costs": [int(c) for c in costs],
                "total": int(costs[-1]),
            }
        )
    return out


def as_rounds(found: list[dict[str, Any]], gates: int, after_feedback: bool = False) -> Rounds:
    """The same as columns."""
    E = len(found)
    score = np.full((E, gates), np.nan)
    cost = np.zeros((E, gates), dtype=np.int64)
    for i, e in enumerate(found):
        k = min(e["T"], gates)
        score[i, :k] = e["scores"][:k]
        cost[i, :k] = e["costs"][:k]
    return Rounds.of(
        score,
        cost,
        np.array([e["total"] for e in found], dtype=np.int64),
        np.array([e["T"] for e in found], dtype=np.int64),
        np.array([e["success"] for e in found], dtype=bool),
        after_feedback=after_feedback,
    )


def as_rows(found: list[dict[str, Any]], gates: int) -> list[dict[str, Any]]:
    """The same as rows of `round_scores`, rounds after the gates left out."""
    rows = []
    for i, e in enumerate(found):
        for r in range(1, min(e["T"], gates) + 1):
            score = e["scores"][r - 1]
            rows.append(
                {
                    "episode_id": f"e{i:03}",
                    "task_id": f"t{i:03}",
                    "group": f"t{i:03}",
                    "round": r,
                    "rounds_total": e["T"],
                    "score": None if np.isnan(score) else score,
                    "cost": e["costs"][r - 1],
                    "cost_total": e["total"],
                    "success": e["success"],
                }
            )
    return rows
