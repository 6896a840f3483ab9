"""Evaluating a frozen policy on the held-out pool: every number of the paper's tables at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel import tables
from sentinel.bootstrap import Interval, ratio_interval
from sentinel.decide import curves, ladder
from sentinel.decide.config import DecideConfig
from sentinel.decide.ladder import Clusters, Statistic
from sentinel.decide.play import EXIT_NAMES, Decisions, apply, systems_of
from sentinel.decide.policy import Policy
from sentinel.decide.table import Floats, Prefixes, from_table

NO_LAMBDA = -1.0
VERSION = 1
Key = tuple[str, str, str | None, str]  # statistic, system, λ, stratum


@dataclass(frozen=True)
class Evaluation:
    """`summary` is JSON-able (see `evaluate`); `decisions` per (system, λ); `intervals` by key."""

    summary: dict[str, Any]
    pool: Prefixes
    decisions: list[Decisions]
    intervals: dict[Key, Interval]


def decision_table(benchmark: str, pool: Prefixes, decided: Iterable[Decisions]) -> pa.Table:
    """Rows of the table `decisions`: every episode of a pool under every system and λ."""
    rows = [
        {
            "benchmark": benchmark,
            "agent": pool.agent,
            "episode_id": pool.episode[i],
            "group": pool.group[i],
            "system": d.system,
            "lam": float(d.lam),
            "exit_time": int(d.exit_time[i]),
            "exit_by": EXIT_NAMES[d.exit_by[i]],
            "delivered": bool(d.delivered[i]),
            "reward": float(d.gain[i] - float(d.lam) * d.loss[i]),
            "p": None if np.isnan(d.p[i]) else float(d.p[i]),
        }
        for d in decided
        for i in range(len(pool))
    ]
    return tables.DECISIONS.sort(tables.DECISIONS.from_rows(rows))


def interval_table(benchmark: str, agent: str, intervals: Mapping[Key, Interval]) -> pa.Table:
    """Rows of the table `intervals`."""
    rows = [
        {
            "benchmark": benchmark,
            "agent": agent,
            "statistic": statistic,
            "system": system,
            "lam": NO_LAMBDA if lam is None else float(lam),
            "stratum": stratum,
            **interval.to_dict(),
        }
        for (statistic, system, lam, stratum), interval in intervals.items()
    ]
    return tables.INTERVALS.sort(tables.INTERVALS.from_rows(rows))


def evaluate(
    policy: Policy,
    data: pa.Table | Prefixes,
    config: DecideConfig | None = None,
    pool_name: str = "heldout",
    draws: Mapping[Statistic, Floats] | None = None,
) -> Evaluation:
    """Everything that is read on the held-out pool, once, with all thresholds frozen.

    Parameters
    ----------
    policy : from `fit`. Stops are played at the λ it was fitted for.
    data : `prefix_scores` of one agent, or its columns.
    config : shares, resamples and seed of the intervals, seconds per step.
    draws : resampled AUROCs computed elsewhere (`decide.blocks`); None computes them here.

    The summary holds: `episodes`, `unlabelled`, `groups`, `always_abstain`; `ladder` (a row per
    system and λ with score, coverage, accuracy, exits, savings, intervals, †); `gate` (its rate on
    answerable questions); `reweighted` and `gate_share`; `auroc`; `withhold`; `reliability`;
    `risk_coverage`;
    `calibration` (confidence bins and selection AUROCs of that pool). Undefined is None.
    """
    config = config or DecideConfig()
    columns = data if isinstance(data, Prefixes) else from_table(data)
    whole = columns.in_pool(pool_name, labelled=False)
    pool = whole.take(whole.labelled)
    clusters = Clusters.of(pool, config.resamples, config.seed, draws)
    intervals: dict[Key, Interval] = {}
    played: list[Decisions] = []
    rungs: list[dict[str, Any]] = []
    shifted: list[dict[str, Any]] = []
    gate_share: list[dict[str, Any]] = []
    by_lambda = play_all(policy, pool)
    for row, found in rungs_of(policy, pool, clusters, by_lambda, config):
        rungs.append(row)
        stakes = row["lam"]
        intervals |= {(stat, row["system"], stakes, "-"): i for stat, i in found.items()}
    for lam, systems in by_lambda.items():
        played += systems.values()
        for share in config.shares:
            for name, interval in ladder.reweighted(pool, clusters, systems, share).items():
                gates = name == "gate_share"
                statistic, system = ("gate_share", "-") if gates else ("rs_minus_abstain", name)
                intervals[(statistic, system, lam, f"pi={share}")] = interval
                line = {"lam": lam, "share": share, **interval.to_dict()}
                if gates:
                    gate_share.append(line)
                    continue
                point = interval.point
                rs = None if point is None else point + float(share)
                shifted.append(
                    {"system": name, "rs": rs, "always_abstain": float(share), **line}
                    | {"dagger": interval.dagger}
                )
        values = {s: ladder.natural(clusters, d) for s, d in systems.items()}
        interval = ladder.share_of_gain(values, clusters, len(pool))
        intervals[("gate_share", "-", lam, "-")] = interval
        gate_share.append({"lam": lam, "share": None, **interval.to_dict()})

    auroc = curves.auroc_rows(policy, pool, clusters)
    for row in auroc:
        statistic, stratum = f"auroc_{row['target']}", f"t={row['t']}"
        intervals[(statistic, row["score"], None, stratum)] = _interval(row)
    withheld = curves.withhold(policy, pool, clusters)
    intervals[("auroc_withhold", "deployed", None, "-")] = _interval(withheld)
    gate = _gate(policy, pool, clusters)
    intervals[("gate_rate_answerable", "gate", None, "-")] = _interval(gate)
    summary = {
        "version": VERSION,
        "agent": policy.agent,
        "pool": pool_name,
        "episodes": len(pool),
        "unlabelled": len(whole) - len(pool),
        "groups": len(clusters.names),
        "unanswerable": int((~pool.answerable).sum()),
        "always_abstain": _always_abstain(pool),
        "resamples": config.resamples,
        "seed": config.seed,
        "ladder": rungs,
        "gate": gate,
        "reweighted": shifted,
        "gate_share": gate_share,
        "auroc": auroc,
        "withhold": withheld,
        "reliability": curves.reliabilities(policy, pool),
        "risk_coverage": curves.risk_coverage(policy, pool),
        "calibration": curves.calibration_pool(policy, columns.in_pool("calibration")),
    }
    return Evaluation(summary, pool, played, intervals)


def rescore(policy: Policy, data: Prefixes, config: DecideConfig) -> list[dict[str, Any]]:
    """The ladder with other labels in `data.good` and `data.labelled`, decisions unchanged.

    Each row also has `always_abstain`, on the questions that these labels cover.
    """
    pool = data.in_pool("heldout")
    clusters = Clusters.of(pool, config.resamples, config.seed)
    refuse = {"always_abstain": _always_abstain(pool)}
    rungs = rungs_of(policy, pool, clusters, play_all(policy, pool), config)
    return [row | refuse for row, _ in rungs]


def _always_abstain(pool: Prefixes) -> float | None:
    return int((~pool.answerable).sum()) / len(pool) if len(pool) else None


def play_all(policy: Policy, pool: Prefixes) -> dict[str, dict[str, Decisions]]:
    """Every system at every fitted λ."""
    systems = systems_of(policy)
    return {lam: {s: apply(policy, pool, lam, s) for s in systems} for lam in policy.stops}


def rungs_of(
    policy: Policy,
    pool: Prefixes,
    clusters: Clusters,
    by_lambda: Mapping[str, Mapping[str, Decisions]],
    config: DecideConfig,
) -> Iterator[tuple[dict[str, Any], dict[str, Interval]]]:
    """Rows of the ladder with their intervals, λ by λ."""
    played = [d for systems in by_lambda.values() for d in systems.values()]
    vanilla = [systems["vanilla"] for systems in by_lambda.values() for _ in systems]
    scores = ladder.score_intervals(pool, clusters, played, vanilla)
    for decisions, found in zip(played, scores, strict=True):
        yield ladder.rung(policy, pool, clusters, decisions, found, config.seconds_per_step)


def _gate(policy: Policy, pool: Prefixes, clusters: Clusters) -> dict[str, Any]:
    """Share of answerable held-out questions that the gate exits, with its cluster interval."""
    fired = pool.first(policy.gate.fires(pool.p_answerable)) <= pool.T
    wrongly = fired & pool.answerable
    interval = ratio_interval(
        clusters.sums(wrongly),
        clusters.sums(pool.answerable),
        clusters.weights,
        n=int(pool.answerable.sum()),
    )
    return {
        **interval.to_dict(),
        "exits_answerable": int(wrongly.sum()),
        "exits_unanswerable": int((fired & ~pool.answerable).sum()),
    }


def _interval(row: dict[str, Any]) -> Interval:
    return Interval(**{name: row[name] for name in Interval.__dataclass_fields__})
