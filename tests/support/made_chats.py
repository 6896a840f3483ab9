"""Episodes as chat messages, made by hand: failing ones say so, some more clearly than others."""

from __future__ import annotations

from typing import Any

import numpy as np


def chat_records(
    tasks: int = 40, trials: int = 3, seed: int = 0, honest: float = 0.8
) -> list[dict[str, Any]]:
    """tau-bench-like records: a system prompt, then per round a tool call and its result.

    A failing episode's calls say `retry` with probability `honest`, a succeeding one's with 1 −
    `honest`. 2 to 8 rounds; task ids keep leading zeros.
    """
    rng = np.random.default_rng(seed)
    records = []
    for task in range(tasks):
        skill = rng.uniform(0.1, 0.9)
        for trial in range(trials):
            good = bool(rng.random() < skill)
            messages: list[dict[str, Any]] = [
                {"role": "system", "content": "You are an agent."},
                {"role": "user", "content": f"Please do errand {task}."},
            ]
            for r in range(int(rng.integers(2, 9))):
                word = "retry" if (rng.random() < honest) != good else "proceed"
                call = {"name": "act", "arguments": f'{{"step": {r}, "how": "{word}"}}'}
                messages += [
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": f"c{r}", "type": "function", "function": call}],
                    },
                    {"role": "tool", "tool_call_id": f"c{r}", "name": "act", "content": "done"},
                ]
            records.append(
                {"task_id": f"{task:03}", "trial": trial, "reward": float(good), "traj": messages}
            )
    return records
