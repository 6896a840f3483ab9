"""Which episodes a judge is asked about, and what its verdicts become: rows of `labels`.

Strict-correct answers stay correct, abstentions keep the strict verdict, an answer to an
unanswerable question and a committed query that raised are wrong without a judge. What is left is
exactly the strict scorer's `mismatch`: an answer to an answerable question, both results executed,
and not equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sentinel.judge.prompt import VERSION

ASKED = "mismatch"
"""The source of a strict verdict that goes to the judge."""
JUDGED, UNJUDGED = "judge", "unjudged"
"""Sources of a judge's verdict, and of an answer that it could not be had for."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What became of one question to the judge; `correct` is None where `error` says why."""

    correct: bool | None
    error: str | None = None


def is_asked(strict: Mapping[str, Any]) -> bool:
    """Whether a row of the strict label goes to the judge."""
    return strict["source"] == ASKED and strict["correct"] is False


def label_row(label: str, strict: Mapping[str, Any], opinion: Opinion | None) -> dict[str, Any]:
    """The judge's row of `labels` for an episode whose strict row is given.

    `opinion` is needed exactly where `is_asked`; raises ValueError otherwise.
    """
    if is_asked(strict) != (opinion is not None):
        raise ValueError(f"episode {strict['episode_id']}: asked and answered disagree")
    row = dict(strict) | {
        "label": label,
        "version": f"{strict['label']} {strict['version']}, judge {VERSION}",
    }
    if opinion is None:
        return row
    source = UNJUDGED if opinion.correct is None else JUDGED
    return row | {"correct": opinion.correct, "source": source, "error": opinion.error}
