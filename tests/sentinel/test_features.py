"""The ten features, by hand and by law: row t depends on turns 1…t and on nothing later."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.features import FAMILIES, feature_rows, token_statistics, trajectory_features
from sentinel.sql.schema import Schema
from sentinel.tables import FEATURE_ROWS, FEATURES

SCHEMA = Schema(
    {"patients": ("subject_id", "gender"), "admissions": ("subject_id", "hadm_id", "n")},
    frozenset({frozenset({("admissions", "subject_id"), ("patients", "subject_id")})}),
)
CLOCK = "2105-12-31 23:59:00"


def turn(
    action: str = "",
    kind: str = "act",
    status: str = "ok",
    observation: str = "1 rows x 1 cols (n)\n[7]",
    logprobs: Any = (-0.1, -0.3),
    top: Any = (0.5, 0.25, 0.125, 0.0625, 0.0625) * 2,
) -> SimpleNamespace:
    tops = None if top is None else [math.log(p) for p in top]
    return SimpleNamespace(
        action=action,
        kind=kind,
        status=status,
        observation=observation,
        logprobs=None if logprobs is None else list(logprobs),
        top_logprobs=tops,
        generated_tokens=2,
        engine_seconds=0.5,
        env_seconds=None,
    )


def episode(*steps: SimpleNamespace) -> Any:
    return SimpleNamespace(
        benchmark="b", agent="a", episode_id="b/a/q/0", task_id="q", steps=list(steps)
    )


def features(*steps: SimpleNamespace, question: str = "", schema: Any = SCHEMA) -> dict[str, Any]:
    matrix = trajectory_features(episode(*steps), question, schema, CLOCK)
    return {name: matrix[:, i].tolist() for i, name in enumerate(FEATURES)}


def test_before_anything_is_observed_all_are_neutral() -> None:
    assert all(values == [0.0] for values in features().values())


def test_uncertainty_by_hand() -> None:
    found = features(
        turn(logprobs=(-0.2, -0.4), top=((0.5,) + (0.125,) * 4) * 2),
        turn(logprobs=(-1.0,), top=(0.2,) * 5),
    )
    first = -(0.5 * math.log(0.5) + 4 * 0.125 * math.log(0.125))
    second = -math.log(0.2)
    assert found["lp_mean"] == pytest.approx([0, -0.3, -0.65])  # mean over steps, not tokens
    assert found["lp_min"] == pytest.approx([0, -0.4, -1.0])
    assert found["ent_mean"] == pytest.approx([0, first, (first + second) / 2])
    assert found["ent_max"] == pytest.approx([0, first, max(first, second)])


def test_top_five_are_not_renormalised_and_zero_probability_counts_nothing() -> None:
    tops = [[math.log(0.5), math.log(0.1), -math.inf, -math.inf, -math.inf]]
    (row,) = token_statistics([[-0.7]], tops)
    assert row[2] == pytest.approx(-0.5 * math.log(0.5) - 0.1 * math.log(0.1))


def test_missing_telemetry_is_missing_from_there_on_and_never_neutral() -> None:
    found = features(turn(), turn(logprobs=None, top=None), turn())
    assert [math.isnan(v) for v in found["lp_mean"]] == [False, False, True, True]
    assert [math.isnan(v) for v in found["ent_max"]] == [False, False, True, True]
    only_tops = features(turn(top=None))
    assert not math.isnan(only_tops["lp_min"][1])
    assert math.isnan(only_tops["ent_mean"][1])


def test_an_empty_turn_observes_no_token() -> None:
    found = features(turn(logprobs=(), top=()), turn(logprobs=(-0.5,)))
    assert found["lp_mean"] == pytest.approx([0, 0, -0.5])
    assert found["lp_min"] == pytest.approx([0, 0, -0.5])


def test_execution_counts_executed_steps_only_and_the_final_one_too() -> None:
    found = features(
        turn(kind="malformed", status="malformed"),
        turn(status="empty"),
        turn(status="error", observation="error: too many rows"),
        turn(kind="final", status="ok", action="SELECT 1"),
    )
    assert found["empty_rate"] == pytest.approx([0, 0, 1, 1 / 2, 1 / 3])
    assert found["error_rate"] == pytest.approx([0, 0, 0, 1 / 2, 1 / 3])
    assert found["n_steps"] == [0, 1, 2, 3, 4]


def test_schema_counts_run_over_all_queries() -> None:
    wrong = "SELECT sex FROM patients p JOIN admissions a ON p.gender = a.hadm_id"
    found = features(
        turn(wrong, status="error", observation="error: no such column: sex"),
        turn("SELECT gender FROM patients"),
        turn("FINAL: null", kind="abstain", status="none"),
    )
    assert found["failed_refs"] == [0, 1, 1, 1]
    assert found["bad_joins"] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "step",
    [
        turn("SELECT " + "(" * 999 + "1" + ")" * 999),  # no parser reads it
        turn("SELECT sex FROM patients"),  # it ran: the parser must be wrong
        turn("SELECT gender FROM patients", status="error", observation="error: no such column: x"),
        turn("SELECT 1", status="error", observation='error: near "FOO": syntax error'),
    ],
)
def test_a_parse_that_fails_or_disagrees_is_missing(step: SimpleNamespace) -> None:
    found = features(turn("SELECT gender FROM patients"), step, turn("SELECT 1"))
    for name in ("failed_refs", "bad_joins"):
        assert found[name][:2] == [0, 0]
        assert all(math.isnan(v) for v in found[name][2:])


def test_literals_are_judged_at_the_commit_against_what_was_seen_before() -> None:
    look = turn("SELECT n FROM admissions WHERE hadm_id = 99")
    final = turn(
        "SELECT n FROM admissions WHERE hadm_id = 5 AND n IN (7, 8)",
        kind="final",
        observation="1 rows x 1 cols (n)\n[8]",
    )
    found = features(look, final, question="stay 5?")
    assert found["ungrounded_frac"] == pytest.approx(
        [0, 0, 1 / 3]
    )  # its own result is not evidence


def test_errors_and_empty_results_ground_nothing() -> None:
    seen = turn("SELECT 1", status="error", observation="error: row 42 of 42")
    nothing = turn("SELECT 1", status="empty", observation="empty (0 rows)")
    final = turn("SELECT n FROM admissions WHERE n = 42 AND hadm_id = 0", kind="final")
    assert features(seen, nothing, final)["ungrounded_frac"][-1] == 1.0


def test_parts_that_do_not_apply_are_missing() -> None:
    found = features(turn(), schema=None)
    assert all(math.isnan(v) for name in FAMILIES["schema"] for v in found[name])
    keyless = features(turn("SELECT 1"), schema=Schema({"a": ("x",)}))
    assert all(math.isnan(v) for v in keyless["bad_joins"])
    assert keyless["failed_refs"] == [0, 0]


def test_rows_fit_the_table() -> None:
    rows = feature_rows([episode(turn(), turn(logprobs=None))], {"q": "?"}, SCHEMA, CLOCK)
    table = FEATURE_ROWS.from_rows(rows)
    assert table.num_rows == 3
    assert table["lp_mean"].to_pylist()[2] is None
    assert table["tokens_so_far"].to_pylist() == [0, 2, 4]
    assert table["seconds_so_far"].to_pylist() == [0.0, 0.5, 1.0]


_probabilities = st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5).map(
    lambda p: [x / sum(p) for x in p]
)


@st.composite
def _turns(draw: Any) -> SimpleNamespace:
    n = draw(st.integers(0, 4))
    tops = [p for _ in range(n) for p in draw(_probabilities)]
    missing = draw(st.integers(0, 9)) == 0
    return turn(
        action=draw(
            st.sampled_from(
                ["SELECT gender FROM patients", "SELECT x FROM y", "SELECT", "SELECT 7, 8", ""]
            )
        ),
        kind=draw(st.sampled_from(["act", "final", "malformed", "abstain"])),
        status=draw(st.sampled_from(["ok", "empty", "error", "malformed", "none"])),
        logprobs=None if missing else draw(st.lists(st.floats(-9, 0), min_size=n, max_size=n)),
        top=None if missing else tops,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(_turns(), max_size=8))
def test_a_prefix_never_looks_ahead(steps: list[SimpleNamespace]) -> None:
    full = trajectory_features(episode(*steps), "patient 7", SCHEMA, CLOCK)
    assert full.shape == (len(steps) + 1, 10)
    for t in range(len(steps) + 1):
        short = trajectory_features(episode(*steps[:t]), "patient 7", SCHEMA, CLOCK)
        np.testing.assert_array_equal(full[: t + 1], short)


@settings(max_examples=60, deadline=None)
@given(st.lists(_turns(), max_size=8))
def test_extremes_and_counts_are_monotone_and_rates_are_rates(steps: list[SimpleNamespace]) -> None:
    found = features(*steps)

    def known(name: str) -> np.ndarray:
        values = np.array(found[name])
        return values[~np.isnan(values)]

    # from the first observed token on: the neutral 0 before it is no observation
    for name, sign in (("lp_min", -1), ("ent_max", 1), ("failed_refs", 1), ("n_steps", 1)):
        assert (np.diff(known(name)) * sign >= 0).all()
    for name in ("empty_rate", "error_rate", "ungrounded_frac"):
        assert ((known(name) >= 0) & (known(name) <= 1)).all()
    assert (known("lp_mean") >= known("lp_min") - 1e-12).all()
    assert (known("ent_mean") <= known("ent_max") + 1e-12).all()
    assert (known("ent_max") <= math.log(5) + 1e-9).all()
