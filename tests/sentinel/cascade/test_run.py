"""Modes, samples, and the words that a result may use."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import small_round_scores

from sentinel.cascade import CascadeConfig, cascade, draw, from_table, rows, summary
from sentinel.cascade.config import checked_grid
from sentinel.cascade.run import sample
from sentinel.cascade.sample import one_rollout
from sentinel.errors import UserError
from sentinel.splits import PAPER_SHARES, STRICT_SHARES, split_tasks
from sentinel.user_tables import dumps


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return small_round_scores.table(tasks=400, rollouts=2)


@pytest.fixture(scope="module")
def pooled() -> pa.Table:
    return small_round_scores.table(tasks=420, rollouts=2, pools=True)


def strict(**settings: Any) -> CascadeConfig:
    return CascadeConfig.of(mode="strict", **settings)


def test_splits_are_disjoint_and_of_the_declared_shares():
    names = [f"t{i}" for i in range(200)]
    for shares in (PAPER_SHARES, STRICT_SHARES):
        pools = split_tasks(names, shares, 3)
        assert set(pools) == set(names)
        counts = {pool: sum(p is pool for p in pools.values()) for pool in shares}
        assert counts == {pool: int(200 * float(share)) for pool, share in shares.items()}
        assert pools == split_tasks(reversed(names), shares, 3)
        assert pools != split_tasks(names, shares, 4)
    with pytest.raises(UserError, match="leave the pools certification, test empty"):
        split_tasks(names[:4], STRICT_SHARES, 0)


@pytest.mark.parametrize("method", ["fixed-sequence", "full-search", "certificate", "margin"])
def test_strict_samples_are_disjoint_by_task_with_one_rollout(table: pa.Table, method: str):
    (rounds,) = from_table(table)
    for config in (strict(method=method), strict(method=method, unseen_scorer=True)):
        parts = sample(rounds, config, 1)
        used = [parts.calibration, parts.search, parts.certification]
        for part in used:
            assert len(set(part.task)) == len(part)
        tasks = [set(p.task) for p in (*used, parts.test)]
        assert len(set().union(*tasks)) == sum(map(len, tasks))
        assert not parts.repeated
        assert (len(parts.certification) > 0) == (method == "certificate")
        share = {"margin": 120}.get(method, 60)
        if not config.unseen_scorer:
            assert len(tasks[3]) == share
            assert len(set().union(*tasks)) == 280
        else:
            assert len(set().union(*tasks)) == 400


def test_the_rollout_is_drawn_before_outcomes_are_seen(table: pa.Table):
    (rounds,) = from_table(table)
    flipped = rounds.take(np.arange(len(rounds)))
    object.__setattr__(flipped, "success", ~rounds.success)
    a, b = one_rollout(rounds, 5), one_rollout(flipped, 5)
    assert a.episode.tolist() == b.episode.tolist()
    assert len(a) == len(set(rounds.task))
    assert a.episode.tolist() != one_rollout(rounds, 6).episode.tolist()


def test_strict_with_pools_is_guaranteed(pooled: pa.Table):
    found = cascade(pooled, strict(targets=["0.85"]))
    (cell,) = found["cells"]
    (target,) = cell["targets"]
    assert found["mode"] == cell["mode"] == target["mode"] == "strict"
    assert target["guarantee"]["guaranteed"]
    assert target["guarantee"]["text"].startswith("guaranteed: with confidence 95 %")
    assert target["policy"]["guaranteed"]
    assert not target["aborts_nothing"]
    assert cell["samples"]["test"]["tasks"] == 60


def test_several_rollouts_or_an_unknown_scorer_are_said(table: pa.Table, pooled: pa.Table):
    (cell,) = cascade(table, strict(targets=["0.8"]))["cells"]
    guarantee = cell["targets"][0]["guarantee"]
    assert guarantee["holds"]
    assert not guarantee["guaranteed"]
    assert guarantee["text"].startswith("if the scorer has seen none of these tasks: ")

    (cell,) = cascade(pooled, strict(targets=["0.8"], rollouts="all"))["cells"]
    guarantee = cell["targets"][0]["guarantee"]
    assert not guarantee["guaranteed"]
    assert guarantee["text"].startswith("if episodes were independent: ")
    assert cell["gates"]["text"].startswith("if episodes were independent: ")
    assert not cell["one_rollout_per_task"]


def test_paper_mode_never_says_guaranteed(table: pa.Table):
    found = cascade(table, CascadeConfig.of(["0.9"], "paper", seeds=3))
    words = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            assert value.get("guaranteed") in (None, False)
            for v in value.values():
                walk(v)
        elif isinstance(value, list):
            for v in value:
                walk(v)
        elif isinstance(value, str):
            words.append(value)

    walk(found)
    assert not any("guaranteed" in word for word in words)
    assert any("if episodes were independent" in word for word in words)
    assert found["cells"][0]["seeds"]["n"] == 3


def test_one_search_serves_every_target(table: pa.Table):
    (rounds,) = from_table(table)
    targets = ("0.8", "0.85", "0.9", "0.95", "0.98", "0.99")
    whole = rows(draw(rounds, CascadeConfig.of(targets, "paper"), 7))
    alone = [r for t in targets for r in rows(draw(rounds, CascadeConfig.of([t], "paper"), 7))]
    assert whole == alone
    assert {r["allocation"] for r in whole} == {"cascade", "single-gate", "uniform", "no-op"}


def test_the_cascade_saves_at_least_what_its_masks_save_on_validation(table: pa.Table):
    (rounds,) = from_table(table)
    found = draw(rounds, CascadeConfig.of(["0.9"], "paper"), 0)
    t = found.targets[0]
    assert found.searched is not None
    for name in ("single-gate", "uniform"):
        other = t.others[name]
        assert other is not None
        index = found.searched.index(tuple(found.thresholds.grid.index(b) for b in other["budget"]))
        assert t.choice is not None
        assert t.choice.saved is not None
        assert t.choice.saved >= found.searched.saved[index]
    assert t.others["no-op"] is not None
    assert (t.others["no-op"]["recall"], t.others["no-op"]["savings"]) == (1.0, 0.0)


def test_summary_over_seeds():
    def row(seed: int, recall: float | None, savings: float, no_op: bool = False) -> dict[str, Any]:
        return {
            "seed": seed,
            "target": "0.9",
            "allocation": "cascade",
            "recall": recall,
            "savings": savings,
            "no_op": no_op,
        }

    (line,) = summary([row(0, 0.8, 0.4), row(1, 1.0, 0.0, True), row(2, None, 0.2)])
    assert line["recall_mean"] == pytest.approx(0.9)
    assert line["recall_sd"] == pytest.approx(np.std([0.8, 1.0], ddof=1))
    assert line["savings_mean"] == pytest.approx(0.2)
    assert (line["seeds"], line["no_recall"], line["no_op"]) == (3, 1, 1)
    (line,) = summary([row(0, None, 0.0)])
    assert line["recall_mean"] is None
    assert line["savings_sd"] is None


def test_too_few_successes_abort_nothing_and_say_what_is_needed():
    few = small_round_scores.table(tasks=40, rollouts=1)
    for config in (
        strict(targets=["0.95"]),
        strict(targets=["0.95"], method="full-search"),
        strict(targets=["0.95"], method="certificate"),
        CascadeConfig.of(["0.95"], "paper", seeds=1),
    ):
        (cell,) = cascade(few, config)["cells"]
        (target,) = cell["targets"]
        assert target["aborts_nothing"], config.method
        assert target["reason"]
        assert target["needs"] == 59
        assert target["test"]["recall"] == 1.0
        assert target["test"]["savings"] == 0.0
        assert not target["guarantee"]["guaranteed"]
        assert [s["target"] for s in target["stricter"]] == ["0.98", "0.99"]
    assert "needs 19 for budget 0.85" in target["reason"]


def test_a_margin_that_cannot_serve_aborts_nothing(table: pa.Table):
    (cell,) = cascade(table, CascadeConfig.of(["0.985"], "paper", seeds=1))["cells"]
    (target,) = cell["targets"]
    assert target["aborts_nothing"]
    assert "margin cannot serve this target" in target["reason"]
    assert target["needs"] == 199


def test_no_success_at_all():
    whole = small_round_scores.table(tasks=60, rollouts=1)
    index = whole.column_names.index("success")
    none = whole.set_column(index, "success", pa.array([False] * whole.num_rows))
    for config in (strict(unseen_scorer=True), CascadeConfig.of(mode="paper", seeds=2)):
        (cell,) = cascade(none, config)["cells"]
        (target,) = cell["targets"]
        assert target["aborts_nothing"]
        assert target["test"]["recall"] is None
    assert cell["seeds"]["summary"][0]["no_recall"] == 2


def test_grid_and_gates_of_any_size(table: pa.Table):
    config = CascadeConfig.of(["0.9"], "paper", grid=["0.6", "0.7", "0.8"], gates=3, seeds=1)
    (cell,) = cascade(table, config)["cells"]
    assert len(cell["targets"][0]["policy"]["thresholds"]) == 3
    fine = [f"{b / 100:g}" for b in range(60, 101)]
    with pytest.raises(UserError, match="candidates"):
        cascade(table, CascadeConfig.of(["0.9"], "paper", grid=fine))
    (cell,) = cascade(table, strict(grid=fine, targets=["0.8"], unseen_scorer=True))["cells"]
    assert cell["targets"][0]["guarantee"]["holds"]
    assert cell["targets"][0]["others"]["uniform"] is None
    assert checked_grid([1, 0.5]) == ("0.5", "1")


def test_after_feedback_never_aborts_on_the_last_round(table: pa.Table):
    (rounds,) = from_table(table, after_feedback=True)
    config = CascadeConfig.of(["0.8"], "paper", after_feedback=True)
    found = draw(rounds, config, 0)
    assert found.targets[0].policy.after_feedback
    test = found.targets[0].test
    (whole,) = from_table(table)
    plain = draw(whole, CascadeConfig.of(["0.8"], "paper"), 0).targets[0].test
    assert test["gates"][1]["alive"] < plain["gates"][1]["alive"]
    assert not rounds.alive[rounds.T == 2, 1].any()


def test_results_are_json_of_one_form(pooled: pa.Table):
    config = strict(targets=["0.85", "0.9"])
    shuffled = pooled.take(np.random.default_rng(0).permutation(pooled.num_rows))
    text = dumps(cascade(pooled, config))
    assert text == dumps(cascade(shuffled, config))
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_missing_pools_are_named(pooled: pa.Table):
    only = pooled.filter(pa.compute.equal(pooled.column("pool"), "test"))
    with pytest.raises(UserError, match="pools calibration, validation of cell cell"):
        cascade(only, strict())


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "loose"},
        {"mode": "paper", "method": "certificate"},
        {"mode": "strict", "seeds": 20},
        {"targets": []},
        {"targets": ["1"]},
        {"targets": ["0.9", "0.90"]},
        {"grid": ["0.9", "0.9"]},
        {"grid": ["0"]},
        {"grid": ["1.5"]},
        {"grid": []},
        {"alpha": "0"},
        {"alpha_promise": "1"},
        {"margin": "-0.1"},
        {"gate": "quantile"},
        {"unit": "episode"},
        {"rollouts": "two"},
        {"gates": 0},
        {"method": "guess"},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]):
    with pytest.raises(UserError):
        CascadeConfig.of(**settings)


def test_a_policy_that_saves_nothing_says_so():
    whole = small_round_scores.table(tasks=500, rollouts=1)
    index = whole.column_names.index("score")
    blind = whole.set_column(index, "score", pa.array([0.5] * whole.num_rows))
    for method in ("margin", "full-search", "fixed-sequence", "certificate"):
        config = strict(targets=["0.95"], method=method, unseen_scorer=True)
        (cell,) = cascade(blind, config)["cells"]
        (target,) = cell["targets"]
        assert target["aborts_nothing"], method
        assert target["reason"]
        assert not target["guarantee"]["guaranteed"]
