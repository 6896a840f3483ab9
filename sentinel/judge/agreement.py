"""Agreement of two raters with each other and of the judge with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def cohen_kappa(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Cohen's κ of two raters on the same cases, in order; None where it is undefined.

    It is undefined without cases, and where both gave one and the same verdict throughout.

    >>> round(cohen_kappa([True, True, False, False], [True, False, False, False]), 3)
    0.5
    >>> cohen_kappa([True, True], [True, True]) is None
    True
    """
    if len(first) != len(second):
        raise ValueError("the raters saw different cases")
    if len({*first, *second}) < 2:
        return None
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(list(first), list(second)))


def wilson(agreed: int, n: int, level: float = 0.95) -> tuple[float, float] | None:
    """Wilson's score interval for a proportion; None without cases.

    >>> [round(x, 4) for x in wilson(95, 100)]
    [0.8882, 0.9785]
    """
    if n == 0:
        return None
    from scipy.stats import binomtest

    found = binomtest(agreed, n).proportion_ci(confidence_level=level, method="wilson")
    return float(found.low), float(found.high)


def confusion(judge: Sequence[bool], human: Sequence[bool]) -> dict[str, int]:
    """Counts of judge against human: `judge_right_human_wrong` is a false acceptance."""
    words = {True: "right", False: "wrong"}
    counts = {f"judge_{words[j]}_human_{words[h]}": 0 for j in (True, False) for h in (True, False)}
    for j, h in zip(judge, human, strict=True):
        counts[f"judge_{words[bool(j)]}_human_{words[bool(h)]}"] += 1
    return counts


def audit(
    judge: Mapping[str, bool], first: Mapping[str, bool], second: Mapping[str, bool]
) -> dict[str, Any]:
    """The audit's numbers; every mapping is case → verdict, over the same cases.

    The human verdict of a case is what both raters say. Cases on which they differ are counted
    (`disputed`) and left out of confusion, agreement and its interval; `raters` has the judge's
    agreement with each of them on all cases. Raises ValueError where the cases differ.
    """
    if not judge.keys() == first.keys() == second.keys():
        raise ValueError("judge and raters saw different cases")
    cases = sorted(judge)
    agreed = [c for c in cases if first[c] == second[c]]
    same = sum(judge[c] == first[c] for c in agreed)
    return {
        "cases": len(cases),
        "kappa": cohen_kappa([first[c] for c in cases], [second[c] for c in cases]),
        "disputed": len(cases) - len(agreed),
        "confusion": confusion([judge[c] for c in agreed], [first[c] for c in agreed]),
        "agreement": _share(same, len(agreed)),
        "raters": [
            _share(sum(judge[c] == rater[c] for c in cases), len(cases))
            for rater in (first, second)
        ],
    }


def _share(agreed: int, n: int) -> dict[str, Any]:
    interval = wilson(agreed, n)
    return {
        "agreed": agreed,
        "n": n,
        "share": agreed / n if n else None,
        "low": None if interval is None else interval[0],
        "high": None if interval is None else interval[1],
    }
