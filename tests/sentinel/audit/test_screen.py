"""The feature screen: a feature that carries news survives, one that repeats the head does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_train_pool import made_pool

from sentinel.audit.pool import TrainPool
from sentinel.audit.screen import ALWAYS_MISSING, difference, screen, second_level
from sentinel.bootstrap import auroc, cluster_weights, group_index
from sentinel.features import FAMILIES
from sentinel.tables import FEATURE_SCREEN, FEATURES

NEWS = FEATURES.index("failed_refs")


def of(rows: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """One row."""
    (found,) = [r for r in rows if (r["kind"], r["name"]) == (kind, name)]
    return found


@pytest.fixture(scope="module")
def pool() -> TrainPool:
    """One feature (failed_refs) carries what the head does not know; uncertainty is missing."""
    made = made_pool(n=400, groups=60, seed=4)
    rng = np.random.default_rng(9)
    good = np.nan_to_num(made.targets["correctness"])
    logits = {**made.logits, "correctness": 0.8 * good + rng.normal(size=len(good))}
    features = made.features.copy()
    features[:, NEWS] = -1.5 * good + rng.normal(size=len(good))
    features[:, :4] = np.nan
    return replace(made, logits=logits, features=features)


@pytest.fixture(scope="module")
def rows(pool: TrainPool) -> list[dict[str, Any]]:
    """Its screen."""
    return screen(pool, resamples=300)


def test_rows_are_those_of_the_table(rows: list[dict[str, Any]]) -> None:
    where = {"benchmark": "b", "agent": "a"}
    table = FEATURE_SCREEN.from_rows([{**where, **r} for r in rows])
    assert table.num_rows == len(FEATURES) + 1 + len(FAMILIES)


def test_the_feature_with_news_survives(rows: list[dict[str, Any]]) -> None:
    survivors = [r["name"] for r in rows if r["kind"] == "feature" and r["survivor"]]
    assert survivors == ["failed_refs"]
    found = of(rows, "feature", "failed_refs")
    assert found["delta"] == pytest.approx(found["auroc_model"] - found["auroc_base"])
    assert 0 < found["low"] < found["delta"] < found["high"]


def test_knocking_out_its_family_costs_the_hybrid(rows: list[dict[str, Any]]) -> None:
    assert of(rows, "hybrid", "all")["delta"] > 0
    schema, execution = of(rows, "family", "schema"), of(rows, "family", "execution")
    assert schema["high"] < 0
    assert schema["delta"] < execution["delta"]
    assert schema["survivor"] is None  # a family is left out, not added


def test_missing_everywhere_is_off(rows: list[dict[str, Any]]) -> None:
    for name in FAMILIES["uncertainty"]:
        found = of(rows, "feature", name)
        assert (found["delta"], found["survivor"], found["note"]) == (None, None, ALWAYS_MISSING)
    assert of(rows, "family", "uncertainty")["note"] == ALWAYS_MISSING


def test_missing_is_never_merged_with_neutral(pool: TrainPool) -> None:
    """Where a feature is missing says something; the neutral 0 in its place would say nothing."""
    good = np.nan_to_num(pool.targets["correctness"]) > 0.5
    rng = np.random.default_rng(5)
    told = np.where(good & (rng.random(len(good)) < 0.8), np.nan, 0.0)
    features = pool.features.copy()
    features[:, 0] = told
    found = of(screen(replace(pool, features=features), resamples=200), "feature", "lp_mean")
    features = features.copy()
    features[:, 0] = np.nan_to_num(told)
    merged = of(screen(replace(pool, features=features), resamples=200), "feature", "lp_mean")
    assert found["survivor"]
    assert found["missing"] > 50
    assert not merged["survivor"]
    assert merged["missing"] == 0


def test_the_interval_resamples_templates_of_fixed_predictions(pool: TrainPool) -> None:
    """Against plain resampling of the rows of the drawn groups."""
    use = pool.eligible("correctness")
    good = pool.targets["correctness"][use] > 0.5
    head = pool.logits["correctness"][use]
    other = head + pool.features[use, NEWS]
    names, index = group_index(pool.group[use])
    weights = cluster_weights(len(names), 60, 3)
    found, base, ours = difference(other, head, good, index, weights)
    draws = []
    for w in weights:
        at = np.repeat(np.arange(len(index)), w[index].astype(int))
        draws.append(auroc(other[at], good[at]) - auroc(head[at], good[at]))  # type: ignore[operator]
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])))
    assert found.point == pytest.approx(ours - base)  # type: ignore[operator]
    assert found.clusters == len(names)


def test_second_level_models_are_cross_fitted() -> None:
    """A column that gives away the label of its own fold only, by another sign in each."""
    rng = np.random.default_rng(6)
    fold = np.repeat(np.arange(4), 60)
    good = rng.random(240) < 0.5
    leak = np.where(good, 1.0, -1.0) * np.where(fold % 2 == 0, 1.0, -1.0)
    found = second_level(leak[:, None], good, fold, 0)
    assert auroc(found, good) < 0.6  # type: ignore[operator]


def test_one_class_is_undefined() -> None:
    pool = made_pool(n=60)
    rows = screen(replace(pool, targets={**pool.targets, "correctness": np.ones(60)}), resamples=20)
    assert all(r["delta"] is None and "one class" in r["note"] for r in rows)


def test_few_groups_give_no_survivor() -> None:
    pool = made_pool(n=120, groups=8, folds=2, seed=8)
    rows = screen(pool, resamples=50)
    assert {r["note"] for r in rows} == {"too few groups"}
    assert all(r["delta"] is not None and r["survivor"] is None for r in rows)
