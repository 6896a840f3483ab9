"""AUROC rows, reliability, the withhold ROC and risk–coverage (Figures 3 to 7, Table 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sentinel.calibrate import reliability, sigmoid
from sentinel.decide.ladder import Clusters
from sentinel.decide.policy import Policy
from sentinel.decide.table import Bools, Floats, Prefixes

CHOW_POINTS = (0.5, 0.8, 0.9)
"""Thresholds τ at λ = 1, 4, 9, marked on the withhold ROC."""
WITHHELD = 2.0
"""Score of an answer that never reaches Chow's rule: above every 1 − p."""
WITHHOLD = ("auroc_withhold", "deployed", "-")
"""The statistic's name in the table `intervals`."""


def auroc_rows(policy: Policy, pool: Prefixes, clusters: Clusters) -> list[dict[str, Any]]:
    """AUROC of both heads at every step and at delivery.

    Correctness: answered answerable episodes, target good, at step t those with T ≥ t; at delivery
    also the deployed estimator. Answerability: all episodes, positive = unanswerable.
    """
    rows = []
    kinds = (
        ("answerability", np.ones(len(pool), dtype=bool), ~pool.answerable, -pool.p_answerable),
        ("correctness", pool.answered & pool.answerable, pool.good, pool.score),
    )
    longest = int(pool.T.max()) if len(pool) else -1
    for target, eligible, positive, values in kinds:
        for t in range(longest + 1):
            alive = eligible & (t <= pool.T)
            row = np.minimum(pool.start + t, len(pool.t) - 1)
            rows.append(_auroc(target, str(t), "head", values[row], positive, alive, clusters))
        rows.append(_auroc(target, "T", "head", values[pool.end], positive, eligible, clusters))
        if target == "correctness":
            deployed = policy.delivery_score(pool)
            rows.append(_auroc(target, "T", "deployed", deployed, positive, eligible, clusters))
    return rows


def _auroc(
    target: str, t: str, score: str, values: Floats, positive: Bools, use: Bools, clusters: Clusters
) -> dict[str, Any]:
    missing = int(np.isnan(values[use]).sum())
    name = (f"auroc_{target}", score, f"t={t}")
    found = clusters.auroc(name, values[use], positive[use], clusters.index[use])
    return {
        "target": target,
        "t": t,
        "score": score,
        "missing": missing,
        "positives": int((positive & use & ~np.isnan(values)).sum()),
        **found.to_dict(),
    }


def withhold(policy: Policy, pool: Prefixes, clusters: Clusters) -> dict[str, Any]:
    """The withhold classifier on committed answers: positive = wrong or unanswerable, score 1 − p.

    Answers that the gate exits, or that have no calibrated p, stand at the top: they are withheld
    at every bar. `points` is the ROC from (0, 0) to (1, 1), one point per distinct score; `chow`
    the rates at τ = 0.5, 0.8, 0.9.
    """
    answers = pool.take(pool.answered)
    index = clusters.index[pool.answered]
    p = policy.delivery_p(answers)
    gated = answers.first(policy.gate.fires(answers.p_answerable)) <= answers.T
    hidden = gated | np.isnan(p)
    value = np.where(hidden, WITHHELD, 1 - p)
    bad = ~answers.good
    n_bad, n_good = int(bad.sum()), int((~bad).sum())
    found = clusters.auroc(WITHHOLD, value, bad, index)
    result = {**found.to_dict(), "positives": n_bad, "gated": int(gated.sum())}
    if not n_bad or not n_good:
        return {**result, "points": None, "chow": None}
    # Ranked by p itself, not by 1 − p, which could merge neighbours.
    key = np.where(hidden, -1.0, p)
    cuts = np.unique(key)
    tpr = np.searchsorted(np.sort(key[bad]), cuts, side="right") / n_bad
    fpr = np.searchsorted(np.sort(key[~bad]), cuts, side="right") / n_good
    points = {"fpr": [0.0, *fpr.tolist()], "tpr": [0.0, *tpr.tolist()]}
    chow = []
    for tau in CHOW_POINTS:
        out = hidden | ~(p >= tau)
        chow.append(
            {
                "tau": tau,
                "fpr": int((out & ~bad).sum()) / n_good,
                "tpr": int((out & bad).sum()) / n_bad,
            }
        )
    return {**result, "points": points, "chow": chow}


def reliabilities(policy: Policy, pool: Prefixes) -> dict[str, Any]:
    """Ten-bin reliability and ECE on committed answers, joint target: head and deployed."""
    answers = pool.take(pool.answered)
    head, deployed = answers.score[answers.end], policy.delivery_score(answers)
    nothing = np.full(len(answers), np.nan)
    curves = {
        "head_raw": answers.p_correct[answers.end],
        "head_mapped": nothing if policy.head_map is None else policy.head_map(head),
        "deployed_raw": sigmoid(deployed),
        "deployed_mapped": policy.delivery_p(answers),
    }
    return {name: reliability(p, answers.good) for name, p in curves.items()}


def risk_coverage(policy: Policy, pool: Prefixes) -> dict[str, Any]:
    """Coverage (delivered/all) and risk (wrong/delivered) of gate + a falling bar on p."""
    gated = pool.first(policy.gate.fires(pool.p_answerable)) <= pool.T
    p = policy.delivery_p(pool)
    open_ = pool.answered & ~gated & ~np.isnan(p)
    values, good = p[open_], pool.good[open_]
    bars = np.unique(values)[::-1]
    kept = len(values) - np.searchsorted(np.sort(values), bars, side="left")
    right = good.sum() - np.searchsorted(np.sort(values[good]), bars, side="left")
    return {
        "threshold": bars.tolist(),
        "coverage": (kept / len(pool)).tolist() if len(pool) else [],
        "risk": ((kept - right) / kept).tolist() if len(values) else [],
    }


def calibration_pool(policy: Policy, pool: Prefixes) -> dict[str, Any]:
    """Read on the calibration pool: raw confidence bins of committed answers, selection AUROC."""
    answers = pool.take(pool.answered)
    return {
        "confidence_bins": reliability(answers.p_correct[answers.end], answers.good),
        "selection": dict(policy.selection.__dict__),
    }
