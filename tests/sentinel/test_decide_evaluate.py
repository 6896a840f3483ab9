"""What is read on the held-out pool: against plain computation, and where it is undefined."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score, roc_curve
from small_prefix_scores import table as small_table

from sentinel import tables
from sentinel.decide import DecideConfig, Evaluation, Policy, Prefixes, apply, evaluate, fit
from sentinel.decide import from_table as columns_of
from sentinel.decide.evaluate import rescore
from sentinel.decide.stop import fit_stop
from sentinel.tables import PREFIX_SCORES

CONFIG = DecideConfig.of(resamples=400, seconds_per_step=2.0)


@pytest.fixture(scope="module")
def data() -> pa.Table:
    """60 groups, three pools, tokens and seconds."""
    found = small_table(seed=3, per_group=12)
    t = np.asarray(found.column("t"))
    found = found.append_column("tokens_so_far", pa.array(t * 11))
    return found.append_column("seconds_so_far", pa.array(t * 0.25))


@pytest.fixture(scope="module")
def policy(data: pa.Table) -> Policy:
    """Fitted on its calibration pool."""
    return fit(data, CONFIG)


@pytest.fixture(scope="module")
def found(policy: Policy, data: pa.Table) -> Evaluation:
    """Its one evaluation."""
    return evaluate(policy, data, CONFIG)


def heldout(data: pa.Table) -> Prefixes:
    """Held-out episodes in columns."""
    return columns_of(data).in_pool("heldout")


def rung(summary: dict[str, Any], system: str, lam: str) -> dict[str, Any]:
    """One row of the ladder."""
    rows = [r for r in summary["ladder"] if (r["system"], r["lam"]) == (system, lam)]
    assert len(rows) == 1
    return dict(rows[0])


def test_ladder_by_plain_sums(found: Evaluation, data: pa.Table) -> None:
    """RS, coverage, accuracy and savings from the decisions, one episode at a time."""
    pool = heldout(data)
    summary = found.summary
    for d in found.decisions:
        row = rung(summary, d.system, d.lam)
        lam, rewards, steps = float(d.lam), [], 0
        for i in range(len(pool)):
            if d.delivered[i]:
                rewards.append(1.0 if pool.good[i] else -lam)
            else:
                rewards.append(0.0 if pool.answerable[i] else 1.0)
            steps += int(pool.T[i] - d.exit_time[i])
        assert row["rs"] == pytest.approx(np.mean(rewards), abs=1e-12)
        assert row["coverage"] == d.delivered.sum() / len(pool)
        if d.delivered.any():
            assert row["accuracy"] == pool.good[d.delivered].mean()
        assert row["steps"]["saved"] == steps
        assert row["tokens"]["saved"] == 11 * steps
        assert row["tokens"]["share"] == pytest.approx(row["steps"]["share"])
        assert row["seconds_serial"]["saved"] == 2.0 * steps
        assert row["seconds_concurrent"]["saved"] == pytest.approx(0.25 * steps)
        assert row["n"] == len(pool)
    assert summary["always_abstain"] == (~pool.answerable).mean()
    for stakes in CONFIG.lambdas:
        saved = [
            rung(summary, s, stakes)["steps"]["saved"] for s in ("vanilla", "chow", "gate", "full")
        ]
        assert saved[:2] == [0, 0]
        assert saved[2] == saved[3]  # Chow saves no steps


def test_intervals_by_resampling_questions(found: Evaluation, data: pa.Table) -> None:
    """The paired interval of RS − always-abstain from the drawn groups' own rows."""
    from sentinel.bootstrap import cluster_weights, group_index

    pool = heldout(data)
    names, index = group_index(pool.group)
    weights = cluster_weights(len(names), 400, 42)
    d = next(d for d in found.decisions if (d.system, d.lam) == ("full", "1"))
    v = next(d for d in found.decisions if (d.system, d.lam) == ("vanilla", "1"))
    for name, difference in (
        ("rs_minus_abstain", d.reward - ~pool.answerable),
        ("rs_minus_vanilla", d.reward - v.reward),
    ):
        means = [
            difference[np.repeat(np.arange(len(pool)), w[index].astype(int))].mean()
            for w in weights
        ]
        got = found.intervals[name, "full", "1", "-"]
        assert (got.low, got.high) == pytest.approx(np.percentile(means, [2.5, 97.5]))
        assert got.point == pytest.approx(difference.mean())
        carrying = {g for g, x in zip(pool.group, difference, strict=True) if x}
        assert 0 < got.clusters <= len(carrying)


def test_reweighting_and_gate_share(found: Evaluation, data: pa.Table) -> None:
    """RS_π from stratum means; at the pool's own share it is RS; always-abstain is π."""
    pool = heldout(data)
    no = ~pool.answerable
    scores = {d.system: d.reward for d in found.decisions if d.lam == "4"}
    for row in (r for r in found.summary["reweighted"] if r["lam"] == "4"):
        pi, reward = float(row["share"]), scores[row["system"]]
        expected = pi * reward[no].mean() + (1 - pi) * reward[~no].mean()
        assert row["rs"] == pytest.approx(expected)
        assert row["point"] == pytest.approx(expected - pi)
        assert row["always_abstain"] == pi
    shares = [r for r in found.summary["gate_share"] if r["lam"] == "4" and r["share"] is None]
    means = {s: r.mean() for s, r in scores.items()}
    gain = (means["gate"] - means["vanilla"]) / (means["full"] - means["vanilla"])
    assert shares[0]["point"] == pytest.approx(gain)


def test_auroc_rows(found: Evaluation, data: pa.Table) -> None:
    """Correctness over answered answerable episodes with T ≥ t; answerability over all."""
    pool = heldout(data)
    rows = {(r["target"], r["t"], r["score"]): r for r in found.summary["auroc"]}
    for t in range(1, 5):
        alive = t <= pool.T
        both = alive & pool.answered & pool.answerable
        row = rows["correctness", str(t), "head"]
        assert row["n"] == both.sum()
        expected = roc_auc_score(pool.good[both], pool.p_correct[pool.start[both] + t])
        assert row["point"] == pytest.approx(expected, abs=1e-12)
        row = rows["answerability", str(t), "head"]
        assert row["n"] == alive.sum()
        p = pool.p_answerable[pool.start[alive] + t]
        expected = roc_auc_score(~pool.answerable[alive], -p)
        assert row["point"] == pytest.approx(expected, abs=1e-12)
    both = pool.answered & pool.answerable
    expected = roc_auc_score(pool.good[both], pool.p_correct[pool.end[both]])
    assert rows["correctness", "T", "head"]["point"] == pytest.approx(expected, abs=1e-12)
    assert rows["correctness", "T", "deployed"]["point"] == pytest.approx(expected, abs=1e-12)


def test_withhold_classifier(found: Evaluation, policy: Policy, data: pa.Table) -> None:
    """Committed answers, wrong or unanswerable; gated answers at the top; Chow points."""
    pool = heldout(data)
    gated = apply(policy, pool, "1", "gate").delivered ^ pool.answered
    assert gated.any()
    answers = pool.answered
    score = np.where(gated, 2.0, 1 - policy.delivery_p(pool))[answers]
    bad = ~pool.good[answers]
    got = found.summary["withhold"]
    assert got["point"] == pytest.approx(roc_auc_score(bad, score), abs=1e-12)
    fpr, tpr, _ = roc_curve(bad, score, drop_intermediate=False)
    np.testing.assert_allclose(got["points"]["fpr"], fpr)
    np.testing.assert_allclose(got["points"]["tpr"], tpr)
    for point, lam in zip(got["chow"], ("1", "4", "9"), strict=True):
        withheld = ~apply(policy, pool, lam, "full").delivered[answers]
        assert point["tpr"] == withheld[bad].mean()
        assert point["fpr"] == withheld[~bad].mean()


def test_risk_coverage_and_reliability(found: Evaluation, policy: Policy, data: pa.Table) -> None:
    """Each bar's risk and coverage are those of delivering at it; bins hold all answers."""
    pool = heldout(data)
    curve = found.summary["risk_coverage"]
    gate_open = apply(policy, pool, "1", "gate").delivered
    p = policy.delivery_p(pool)
    for bar, coverage, risk in zip(
        curve["threshold"], curve["coverage"], curve["risk"], strict=True
    ):
        out = gate_open & (p >= bar)
        assert coverage == out.mean()
        assert risk == pytest.approx(1 - pool.good[out].mean())
    for one in found.summary["reliability"].values():
        assert sum(b["n"] for b in one["bins"]) == pool.answered.sum()
    assert set(found.summary["reliability"]) == {
        "head_raw", "head_mapped", "deployed_raw", "deployed_mapped"
    }  # fmt: skip


def test_other_labels_rescore_the_same_decisions(policy: Policy, data: pa.Table) -> None:
    """Stricter labels, some of them missing: scores and always-abstain on what they cover."""
    pool = columns_of(data)
    half = np.arange(len(pool)) % 2 == 0
    known = ~(pool.answered & pool.answerable & (np.arange(len(pool)) % 3 == 0))
    other = replace(pool, good=pool.good & half, labelled=pool.labelled & known)
    covered = other.in_pool("heldout")
    rows = rescore(policy, other, CONFIG)
    for row in rows:
        d = apply(policy, covered, row["lam"], row["system"])
        right, wrong = d.delivered & covered.good, d.delivered & ~covered.good
        gain = (right | (~d.delivered & ~covered.answerable)).sum()
        assert row["rs"] == pytest.approx((gain - float(row["lam"]) * wrong.sum()) / len(covered))
        assert row["always_abstain"] == (~covered.answerable).mean()
    assert {r["system"] for r in rows} > {"vanilla", "full", "early-exit"}


def test_exact_bar_is_never_below_chow(found: Evaluation) -> None:
    """(λ+ε)/(1+λ) ≥ τ: the variant delivers a subset of the full system."""
    for lam in CONFIG.lambdas:
        full, exact = (
            next(d for d in found.decisions if (d.system, d.lam) == (s, lam))
            for s in ("full", "exact-bar")
        )
        assert not (exact.delivered & ~full.delivered).any()


def test_the_same_seed_gives_the_same_bytes(policy: Policy, data: pa.Table) -> None:
    """Any order of rows, valid JSON without NaN, tables of the declared schema."""
    shuffled = data.take(pa.array(np.random.default_rng(1).permutation(data.num_rows)))
    one, two = (evaluate(policy, d, CONFIG) for d in (data, shuffled))
    assert json.dumps(one.summary, allow_nan=False) == json.dumps(two.summary, allow_nan=False)
    from sentinel.decide.evaluate import decision_table, interval_table

    decided = decision_table("w", one.pool, one.decisions)
    assert decided.num_rows == len(one.pool) * len(one.decisions)
    assert interval_table("w", "a", one.intervals).schema.equals(tables.INTERVALS.schema)


@pytest.mark.parametrize(
    "kind", ["all abstain", "all answerable", "none answerable", "no held-out", "no scores", "one"]
)
def test_undefined_is_null_and_nothing_crashes(kind: str) -> None:
    """Extreme pools: nothing answered, 0 % and 100 % unanswerable, empty, unscored, one episode."""
    rows = small_table(seed=1).to_pylist()
    for row in rows:
        if kind == "all abstain":
            row |= {"answered": False, "correct": None}
        elif kind == "all answerable":
            row["answerable"] = True
        elif kind == "none answerable":
            row |= {"answerable": False, "correct": False if row["answered"] else None}
        elif kind == "no scores":
            row |= {"p_answerable": None, "p_correct": None}
    if kind == "no held-out":
        rows = [r for r in rows if r["pool"] != "heldout"]
    if kind == "one":
        first = next(r["episode_id"] for r in rows if r["pool"] == "heldout")
        rows = [r for r in rows if r["pool"] != "heldout" or r["episode_id"] == first]
    types = {n: c.type for n, c in PREFIX_SCORES.columns.items()}
    table = pa.table({n: pa.array([r[n] for r in rows], types[n]) for n in rows[0]})
    config = DecideConfig.of(["0", "1", "2.5"], resamples=50)
    policy = fit(table, config)
    summary = evaluate(policy, table, config).summary
    json.dumps([summary, policy.to_dict()], allow_nan=False)
    full = rung(summary, "full", "1")
    if kind == "all abstain":
        assert full["accuracy"] is None
        assert full["intervals"]["rs_minus_abstain"]["note"] == "too few groups"
        assert full["rs"] == summary["always_abstain"]
    if kind in ("all answerable", "none answerable"):
        assert all(r["rs"] is None for r in summary["reweighted"])
    if kind == "none answerable":
        assert policy.gate.theta is None
        assert full["rs"] == 1.0  # all refused
    if kind == "no held-out":
        assert (full["rs"], summary["always_abstain"], summary["withhold"]["point"]) == (None,) * 3
    if kind == "no scores":
        assert (full["delivered"], full["steps"]["saved"]) == (0, 0)
    if kind == "one":
        assert summary["ladder"][0]["intervals"]["rs"]["low"] is None


def test_speed_on_many_distinct_values() -> None:
    """2,000 episodes of 8 turns: the fit, and a search over 16,000 candidates, within 2 s each."""
    rng = np.random.default_rng(0)
    n, T = 2000, 8
    size = n * (T + 1)
    good = np.repeat(rng.random(n) < 0.5, T + 1)
    answered = np.repeat(rng.random(n) < 0.9, T + 1)
    episode = np.repeat(np.arange(n), T + 1)
    # Scores that order outcomes perfectly in many places give many calibrated values.
    p = np.clip(rng.beta(2, 2, size) * 0.8 + 0.2 * good, 0, 1)
    table = pa.table(
        {
            "episode_id": pa.array([f"e{i:05}" for i in episode]),
            "group": pa.array([f"g{i % 100}" for i in episode]),
            "pool": pa.array(["calibration"] * size),
            "t": pa.array(np.tile(np.arange(T + 1), n)),
            "T": pa.array(np.full(size, T)),
            "answerable": pa.array(np.ones(size, dtype=bool)),
            "answered": pa.array(answered),
            "correct": pa.array(good & answered),
            "p_answerable": pa.array(rng.random(size)),
            "p_correct": pa.array(p),
        }
    )
    start = time.process_time()
    policy = fit(table, CONFIG)
    assert time.process_time() - start < 2
    pool = columns_of(table)
    start = time.process_time()
    stop = fit_stop(pool, pool.p_correct, pool.T + 1, pool.answered, "2.5")
    assert time.process_time() - start < 2
    assert (policy.stops["1"].candidates > 20, stop.candidates) == (True, n * T + 2)
