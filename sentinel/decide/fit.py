"""Fitting: thresholds and maps from the calibration pool alone, the hybrid from the train pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from sentinel.calibrate import IsotonicMap, OneClassError, fit_isotonic
from sentinel.decide import estimator
from sentinel.decide.config import DecideConfig
from sentinel.decide.exact import chow_threshold
from sentinel.decide.gate import fit_gate
from sentinel.decide.policy import Policy
from sentinel.decide.stop import fit_stop
from sentinel.decide.table import Bools, Floats, Prefixes, from_table


def fit(data: pa.Table | Prefixes, config: DecideConfig | None = None) -> Policy:
    """Fit the decision layer of one agent (the paper, Section 3.2).

    Parameters
    ----------
    data : `prefix_scores` of one agent, or its columns. Of the held-out pool nothing is read; rows
        of the train pool hold out-of-fold scores and train the hybrid estimator only.
    config : settings.

    In this order: the gate; the prefix map on every snapshot of every calibration episode; the
    delivery estimator; the delivery map on every committed calibration answer, before gate and
    stop; s_λ with all else frozen. Whatever a pool cannot support is left out and said in
    `Policy.flags`.
    """
    config = config or DecideConfig()
    columns = data if isinstance(data, Prefixes) else from_table(data)
    whole = columns.in_pool("calibration", labelled=False)
    calibration, train = whole.take(whole.labelled), columns.in_pool("train")
    flags: list[str] = []

    reachable = whole.take(whole.answerable)
    gate = fit_gate(reachable.smallest(reachable.p_answerable), config.gate_budget)
    if gate.theta is None:
        flags.append(
            "no gate: no answerable calibration episode"
            if not gate.n
            else "no gate: too few answerable calibration episodes have an answerability score"
        )

    target = np.repeat(calibration.good, calibration.T + 1)
    prefix_map = _isotonic("prefix map", calibration.score, target, flags)

    model = estimator.fit_hybrid(train, config.estimator_seed)
    selection = estimator.select(model, calibration, train, config.selection_margin)
    hybrid = selection.chosen == "hybrid"
    answers = estimator.committed(calibration)
    head_map = _isotonic(
        "delivery map of the head", answers.score[answers.end], answers.good, flags
    )
    delivery_map = head_map
    if hybrid:
        scores = estimator.hybrid_score(model, answers)
        delivery_map = _isotonic("delivery map", scores, answers.good, flags)
    unanswerable_map = _isotonic(
        "exact bar",
        Policy.unanswerable_logit(answers)[answers.end],
        ~answers.answerable,
        flags,
    )
    if delivery_map is None:
        flags.append("without a delivery map no answer passes Chow's rule")
    if selection.chosen == "head" and columns.features is None:
        flags.append(f"head only: {selection.reason}")
    flags += _sharing(columns)

    policy = Policy(
        agent=columns.agent,
        gate_budget=config.gate_budget,
        gate=gate,
        selection=selection,
        prefix_map=prefix_map,
        head_map=head_map,
        delivery_map=delivery_map,
        unanswerable_map=unanswerable_map,
        stops={},
        flags=tuple(flags),
        counts={
            "calibration": len(calibration),
            "calibration_unlabelled": len(whole) - len(calibration),
            "committed": len(answers),
            "train": len(train),
        },
        model_hash=estimator.fingerprint(model) if hybrid else None,
        sklearn=_sklearn_version() if hybrid else None,
        model=model if hybrid else None,
    )
    prefix_p, delivery_p = policy.prefix_p(calibration), policy.delivery_p(calibration)
    gate_time = calibration.first(gate.fires(calibration.p_answerable))
    stops = {}
    for lam in config.lambdas:
        deliverable = calibration.answered & (delivery_p >= chow_threshold(lam))
        stops[lam] = fit_stop(calibration, prefix_p, gate_time, deliverable, lam)
    return replace(policy, stops=stops)


def _isotonic(name: str, scores: Floats, positive: Bools, flags: list[str]) -> IsotonicMap | None:
    try:
        return fit_isotonic(scores, positive)
    except OneClassError as error:
        flags.append(f"{name} refused: {error}")
        return None


def _sharing(columns: Prefixes) -> list[str]:
    pools_of: dict[str, set[str]] = {}
    for group, pool in zip(columns.group, columns.pool, strict=True):
        pools_of.setdefault(group, set()).add(pool)
    shared = sum(len(pools) > 1 for pools in pools_of.values())
    if not shared:
        return []
    return [
        f"{shared} groups are in more than one pool: thresholds and intervals are not independent"
    ]


def _sklearn_version() -> str:
    import sklearn

    return str(sklearn.__version__)
