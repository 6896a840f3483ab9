"""The five surface features: what the serving API alone shows of each round (the paper, "Scorers").

Per round r: mean log-probability of its generated tokens; mean of that over earlier rounds; number
of generated tokens; number of prompt tokens; earlier feedbacks with an error word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.features import token_statistics

SURFACE = (
    "logprob_mean",
    "earlier_logprob_mean",
    "generated_tokens",
    "prompt_tokens",
    "earlier_error_words",
)
ERROR_WORDS = ("error", "invalid", "fail")
"""Default list; a feedback counts once, whatever the case and whatever the word is part of."""


def surface_features(
    steps: Sequence[Any], gates: int, words: Sequence[str] = ERROR_WORDS
) -> NDArray[np.float64]:
    """Features of rounds 1…gates of one episode, (gates, 5); rows after its last round are NaN.

    NaN also marks what is unknown: the log-probability of a turn without one, and, at round 1, the
    mean over earlier rounds. Scorers put the training mean there. The feedback of round r itself is
    never read: the gate fires before the environment answers.
    """
    out = np.full((gates, len(SURFACE)), np.nan)
    n = min(len(steps), gates)
    if not n:
        return out
    steps = steps[:n]
    means = token_statistics([s.logprobs for s in steps], [None] * n)[:, 0]
    means = np.where(np.isfinite(means), means, np.nan)
    known = ~np.isnan(means)
    total, count = np.cumsum(np.where(known, means, 0.0)), np.cumsum(known)
    out[:n, 0] = means
    earlier = count[:-1]
    out[1:n, 1] = np.divide(total[:-1], earlier, out=np.full(n - 1, np.nan), where=earlier > 0)
    out[:n, 2] = [s.generated_tokens for s in steps]
    out[:n, 3] = [s.prompt_tokens for s in steps]
    small = [w.lower() for w in words]
    hit = [any(w in s.observation.lower() for w in small) for s in steps]
    out[:n, 4] = np.concatenate([[0], np.cumsum(hit)[:-1]])
    return out
