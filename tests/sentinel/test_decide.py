"""The decision layer by hand-computed cases, and the laws it must obey."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel import tables
from sentinel.decide import DecideConfig, Policy, apply, evaluate, fit, from_table
from sentinel.decide import estimator as est
from sentinel.decide.exact import chow_threshold, decimal_text
from sentinel.decide.gate import Gate, fit_gate
from sentinel.decide.play import EXIT_NAMES
from sentinel.errors import UserError

TYPES = {name: column.type for name, column in tables.PREFIX_SCORES.columns.items()}
QUICK = DecideConfig(resamples=200)


def episode(
    name: str,
    pool: str,
    p_correct: list[float | None],
    p_answerable: list[float | None] | None = None,
    *,
    answerable: bool = True,
    answered: bool = True,
    correct: bool | None = True,
    **more: Any,
) -> list[dict[str, Any]]:
    """Rows of one episode; T is one less than the number of scores."""
    T = len(p_correct) - 1
    ans = p_answerable or [0.9] * (T + 1)
    return [
        {
            "episode_id": name,
            "group": more.get("group", name),
            "pool": pool,
            "t": t,
            "T": T,
            "answerable": answerable,
            "answered": answered,
            "correct": correct if answered else None,
            "p_answerable": ans[t],
            "p_correct": p_correct[t],
        }
        for t in range(T + 1)
    ]


def as_table(*episodes: list[dict[str, Any]]) -> pa.Table:
    """Episodes as a typed table."""
    rows = [row for found in episodes for row in found]
    return pa.table({n: pa.array([r[n] for r in rows], TYPES[n]) for n in rows[0]})


def noisy(n: int = 400, seed: int = 0, features: bool = False, groups: int = 60) -> pa.Table:
    """A random table in which the scores know something; features know more when asked."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        group = i % groups
        T = int(rng.integers(1, 6))
        answerable, answered = group % 10 != 0, bool(rng.random() < 0.85)
        right = bool(rng.random() < 0.6)
        base = episode(
            f"e{i:04}",
            ("train", "calibration", "heldout")[group % 3],
            [float(x) for x in 1 / (1 + np.exp(-(rng.normal(0, 1, T + 1) + 0.7 * right)))],
            [float(x) for x in 1 / (1 + np.exp(-(rng.normal(0, 1, T + 1) + 4 * answerable)))],
            answerable=answerable,
            answered=answered,
            correct=right and answerable,
            group=f"g{group:02}",
        )
        for row in base:
            row["tokens_so_far"] = 7 * row["t"]
            row["seconds_so_far"] = 0.5 * row["t"]
            if features:
                row |= {name: float(rng.normal()) for name in tables.FEATURES}
                row["lp_mean"] += 2.0 * (right and answerable)
                row["bad_joins"] = None
        rows += base
    return pa.table({n: pa.array([r[n] for r in rows], TYPES[n]) for n in rows[0]})


# The gate


@given(
    st.lists(st.floats(0, 1).map(lambda x: round(x, 1)), max_size=40),
    st.fractions(0, Fraction(99, 100)),
)
def test_gate_exits_at_most_its_budget_and_no_larger_one_would(
    minima: list[float], budget: Fraction
) -> None:
    """At most k below θ; any larger θ exits more than k."""
    gate = fit_gate(minima, budget)
    k = (budget * len(minima)).__floor__()
    if not minima:
        assert gate.theta is None
        return
    assert gate.theta is not None
    assert gate.k == k
    assert sum(m < gate.theta for m in minima) <= k
    assert sum(m < np.nextafter(gate.theta, 2) for m in minima) > k


def test_gate_budget_is_exact() -> None:
    """0.29 · 100 is 28.999999999999996 in floats; the budget is 29 questions."""
    gate = fit_gate(np.arange(100) / 100, "0.29")
    assert (gate.k, gate.theta, gate.exiting) == (29, 0.29, 29)


def test_gate_without_scores_never_exits() -> None:
    """No episode, or the deciding one without a score: no gate, NaN never exits."""
    assert fit_gate([], "0.005").theta is None
    assert fit_gate([0.5, np.nan], "0.5").theta is None
    assert fit_gate([0.5, np.nan], "0").theta == 0.5
    fired = Gate(0.5, 1, 0, 0).fires(np.array([0.4, 0.5, np.nan]))
    assert fired.tolist() == [True, False, False]
    with pytest.raises(ValueError, match="budget"):
        fit_gate([0.1], "1")


# Play


@pytest.fixture
def policy() -> Policy:
    """θ = 0.5; calibrated values 0, 1/2 and 1 at p = 0.1, 0.5, 0.9, at every t and at delivery."""
    pairs = [(0.1, False), (0.1, False), (0.5, True), (0.5, False), (0.9, True), (0.9, True)]
    data = as_table(
        *(
            episode(f"c{i}", "calibration", [p, p], [0.5, 0.5], correct=right)
            for i, (p, right) in enumerate(pairs)
        ),
        episode("x", "calibration", [0.1, 0.1], [0.4, 0.5], answerable=False),
    )
    return fit(data, QUICK)


def test_order_of_precedence(policy: Policy) -> None:
    """The first t at which one fires; the gate is named first; the stop is not read at T."""
    assert policy.gate.theta == 0.5
    stop = replace(policy.stops["1"], s=0.5)
    policy = replace(policy, stops={**policy.stops, "1": stop})
    cases: dict[str, Any] = {
        # name: (p_correct, p_answerable) → (e, by, delivered)
        "a": ([0.9, 0.9, 0.9], [0.9, 0.9, 0.9], (2, None, True)),
        "b": ([0.1, 0.9, 0.9], [0.4, 0.9, 0.9], (0, "gate", False)),  # both at t = 0
        "c": ([0.9, 0.1, 0.9], [0.9, 0.9, 0.4], (1, "stop", False)),
        "d": ([0.9, 0.9, 0.9], [0.9, 0.9, 0.4], (2, "gate", False)),  # at T: saves nothing
        "e": ([0.9, 0.9, 0.1], [0.9, 0.9, 0.9], (2, "chow", False)),  # no stop at T
        "f": ([0.5, 0.5, 0.5], [0.9, 0.5, 0.9], (2, None, True)),  # equality: neither fires
        "g": ([None, None, 0.9], [None, None, None], (2, None, True)),  # NaN never exits
        "h": ([0.9, 0.9, None], [0.9, 0.9, 0.9], (2, "chow", False)),  # nor does it deliver
    }
    data = from_table(as_table(*(episode(n, "heldout", c, a) for n, (c, a, _) in cases.items())))
    found = apply(policy, data, "1", "early-exit")
    for i, (name, (_, _, expected)) in enumerate(cases.items()):
        got = (int(found.exit_time[i]), EXIT_NAMES[found.exit_by[i]], bool(found.delivered[i]))
        assert got == expected, name


def test_chow_delivers_at_equality() -> None:
    """k/n = λ/(1+λ) is an equality in float64, for any λ written as a decimal."""
    for lam in ("0", "0.25", "0.5", "1", "1.5", "4", "9", "99"):
        tau = Fraction(lam) / (1 + Fraction(lam))
        assert chow_threshold(lam) == tau.numerator / tau.denominator
    data = as_table(
        *(episode(f"c{i}", "calibration", [0.5, 0.5], correct=i < 4) for i in range(5)),
        *(episode(f"h{i}", "heldout", [0.5, 0.5]) for i in range(3)),
    )
    policy = fit(data, DecideConfig.of([4, "4.0001"], resamples=5))
    held = from_table(data).in_pool("heldout")
    assert apply(policy, held, "4", "full").delivered.all()
    assert not apply(policy, held, "4.0001", "full").delivered.any()


def test_always_is_a_word(policy: Policy) -> None:
    """Where every answer is wrong, the stop refuses everything at t = 0, scores or none."""
    data = as_table(
        *(episode(f"c{i}", "calibration", [0.3, 0.6, 0.7], correct=i < 1) for i in range(20)),
        episode("h", "heldout", [None, None, None]),
    )
    policy = fit(data, QUICK)
    stop = policy.stops["9"]
    assert (stop.s, stop.saved, stop.steps) == ("always", 40, 40)
    assert '"s":"always"' in policy.to_json()
    again = Policy.from_json(policy.to_json())
    found = apply(again, from_table(data).in_pool("heldout"), "9", "early-exit")
    assert found.exit_time.tolist() == [0]
    assert EXIT_NAMES[found.exit_by[0]] == "stop"


def test_one_class_maps_are_refused_and_flagged() -> None:
    """Then nothing has a calibrated probability: nothing is stopped, nothing is delivered."""
    data = as_table(
        *(episode(f"c{i}", "calibration", [0.3, 0.8]) for i in range(4)),
        episode("h", "heldout", [0.3, 0.8]),
    )
    policy = fit(data, QUICK)
    assert policy.prefix_map is None
    assert policy.delivery_map is None
    assert any("prefix map refused" in f for f in policy.flags)
    summary = evaluate(policy, data, QUICK).summary
    rungs = {(r["system"], r["lam"]): r for r in summary["ladder"]}
    assert rungs["full", "1"]["delivered"] == 0
    assert rungs["gate", "1"]["delivered"] == 1
    assert rungs["full", "1"]["accuracy"] is None
    assert ("exact-bar", "1") not in rungs


def test_unlabelled_answers_leave_the_metrics_but_not_the_gate() -> None:
    """An answer without a verdict has an episode, and no outcome."""
    data = as_table(
        episode("c0", "calibration", [0.2, 0.2], [0.3, 0.3], correct=None),
        *(episode(f"c{i}", "calibration", [0.2, 0.7], correct=i < 3) for i in range(1, 6)),
        episode("h0", "heldout", [0.2, 0.2], correct=None),
        episode("h1", "heldout", [0.2, 0.2]),
    )
    policy = fit(data, QUICK)
    assert policy.gate.theta == 0.3
    assert policy.gate.n == 6
    assert policy.counts["calibration"] == 5
    assert policy.counts["calibration_unlabelled"] == 1
    summary = evaluate(policy, data, QUICK).summary
    assert (summary["episodes"], summary["unlabelled"]) == (1, 1)


# The estimator


def test_hybrid_is_chosen_only_when_clearly_better(tmp_path: Path) -> None:
    """With informative features the hybrid delivers; saved and loaded it decides the same."""
    data = noisy(900, features=True)
    policy = fit(data, QUICK)
    chosen = policy.selection
    assert chosen.chosen == "hybrid"
    assert chosen.auroc_hybrid is not None
    assert chosen.auroc_head is not None
    assert chosen.auroc_hybrid > chosen.auroc_head + 0.005
    assert policy.sklearn is not None
    policy.save(tmp_path)
    again = Policy.load(tmp_path)
    assert again == policy
    assert again.hash() == policy.hash()
    one, two = (evaluate(p, data, QUICK).summary for p in (policy, again))
    assert json.dumps(one, allow_nan=False) == json.dumps(two, allow_nan=False)
    assert fit(data, QUICK).hash() == policy.hash()
    with pytest.raises(UserError, match="not loaded"):
        evaluate(Policy.from_json(policy.to_json()), data, QUICK)
    with pytest.raises(UserError, match="needs the columns"):
        evaluate(policy, data.drop_columns(["lp_min"]), QUICK)
    other = est.fit_hybrid(from_table(noisy(600, 5, True)).in_pool("train"), 42)
    with pytest.raises(UserError, match="not the one"):
        Policy.from_json(policy.to_json(), other)


class _Fixed:
    """A model with given scores."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = np.array(scores)

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        """The given scores."""
        return self.scores[: len(x)]


def test_equality_and_undefined_keep_the_head() -> None:
    """AUROC 3/4 against 3/4 − 1/200 + 1/200: equal fractions are no improvement."""
    rows = as_table(
        *(episode(f"c{i}", "calibration", [0.5, p], correct=y) for i, (p, y) in enumerate(
            [(0.1, False), (0.3, True), (0.2, False), (0.15, True)]
        ))
    )  # fmt: skip
    columns = from_table(rows).in_pool("calibration")
    columns = replace(columns, features=np.zeros((len(columns.t), 10)))
    train = columns
    better = _Fixed([1, 4, 2, 3])
    chosen = est.select(better, columns, train, "0.005")
    assert (chosen.auroc_head, chosen.auroc_hybrid) == (0.75, 1.0)
    assert chosen.chosen == "hybrid"
    assert est.select(better, columns, train, "0.25").chosen == "head"
    assert est.select(better, columns, train, "0.2499").chosen == "hybrid"
    one_class = columns.take(columns.good)
    assert est.select(better, one_class, train, "0.005").chosen == "head"
    assert est.select(None, columns, train, "0.005").chosen == "head"


def test_no_features_is_said() -> None:
    """Head only, and the reason names the absent columns."""
    policy = fit(noisy(200), QUICK)
    assert policy.selection.chosen == "head"
    assert policy.model is None
    assert any("head only: no feature columns: lp_mean" in f for f in policy.flags)


# Policies and numbers


def test_policy_round_trip_decides_identically() -> None:
    """Thresholds read back decide exactly as when they were chosen; no NaN or Infinity in JSON."""
    data = noisy(500, 3)
    policy = fit(data, QUICK)
    text = policy.to_json()
    again = Policy.from_json(text)
    assert again == policy
    assert again.to_json() == text
    assert len(policy.hash()) == 64
    held = from_table(data).in_pool("heldout")
    for lam in QUICK.lambdas:
        for system in ("gate", "full", "early-exit", "exact-bar"):
            one, two = apply(policy, held, lam, system), apply(again, held, lam, system)
            assert (one.exit_time == two.exit_time).all()
            assert (one.delivered == two.delivered).all()
    shuffled = data.take(pa.array(np.random.default_rng(0).permutation(data.num_rows)))
    assert fit(shuffled, QUICK).to_json() == text
    more = fit(data, DecideConfig.of([1, 4, 9, 20]))
    assert more.hash() == policy.hash()  # a further λ is no other monitor
    assert fit(data, DecideConfig.of(gate_budget="0.1")).hash() != policy.hash()


def test_lambda_texts() -> None:
    """λ is the decimal its writer meant, or refused."""
    texts = [decimal_text(x) for x in (1, 1.0, "1.50", 0.1, "1e2")]
    assert texts == ["1", "1", "1.5", "0.1", "100"]
    for bad in (-1, "nan", "inf", "x", True, float("nan")):
        with pytest.raises(UserError, match="λ"):
            decimal_text(bad)
    faulty: list[dict[str, Any]] = [{"lambdas": []}, {"lambdas": [1, "1.0"]}, {"gate_budget": 1}]
    for arguments in faulty:
        with pytest.raises(UserError):
            DecideConfig.of(**arguments)
    with pytest.raises(UserError, match="shares"):
        DecideConfig.of(shares=["1"])


# The table


def test_all_faults_at_once() -> None:
    """Columns, types and rows: one message."""
    good = noisy(30)
    bad = good.drop_columns(["group"]).append_column("extra", good.column("t"))
    bad = bad.set_column(
        bad.column_names.index("p_correct"), "p_correct", pa.array(["x"] * bad.num_rows)
    )
    with pytest.raises(UserError) as error:
        from_table(bad)
    for part in ("missing columns: group", "unknown columns: extra", "p_correct cannot be read"):
        assert part in str(error.value)
    rows = good.to_pylist()
    rows[0]["pool"] = "test"
    rows[5]["p_answerable"] = 1.5
    rows = [r for r in rows if not (r["episode_id"] == "e0003" and r["t"] == 0)]
    with pytest.raises(UserError) as error:
        from_table(pa.table({n: pa.array([r[n] for r in rows], TYPES[n]) for n in rows[0]}))
    for part in (
        "unknown pools: test",
        "p_answerable has 1 values outside",
        "pool changes within an episode",
        "1 episodes lack a snapshot",
    ):
        assert part in str(error.value)


def test_repeats_numeric_groups_and_two_agents_are_refused() -> None:
    """Repeated snapshots, groups that lost their zeros, several agents in one call."""
    good = noisy(30)
    with pytest.raises(UserError, match="repeat an episode_id and t"):
        from_table(pa.concat_tables([good, good.slice(0, 1)]))
    numeric = good.set_column(1, "group", pa.array(np.arange(good.num_rows)))
    with pytest.raises(UserError, match="leading zeros"):
        from_table(numeric)
    names = pa.array(["a", "b"] * (good.num_rows // 2 + 1))[: good.num_rows]
    with pytest.raises(UserError, match="more than one agent"):
        from_table(good.append_column("agent", names))


def test_float32_scores_and_shared_groups() -> None:
    """Scores of any width act in float64; a group in two pools is flagged, not hidden."""
    data = noisy(100)
    narrow = data.set_column(
        data.column_names.index("p_correct"),
        "p_correct",
        data.column("p_correct").cast(pa.float32()),
    )
    columns = from_table(narrow)
    assert columns.score.dtype == np.float64
    one = data.set_column(1, "group", pa.array(["g"] * data.num_rows))
    assert any("1 groups are in more than one pool" in f for f in fit(one, QUICK).flags)
