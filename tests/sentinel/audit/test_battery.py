"""The battery: controls that pass where there is nothing, and leaks that it finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_train_pool import made_pool, snapshots_of, tables_of

from sentinel.audit.battery import (
    SILENT,
    UNJUDGED,
    battery,
    duplicates,
    ending_only,
    out_of_fold,
    permuted,
    telemetry,
)
from sentinel.audit.measure import NO_FOLD, VACUOUS, acceptance, control, fold_mean, row
from sentinel.audit.pool import TrainPool
from sentinel.bootstrap import auroc
from sentinel.tables import AUDIT, FEATURES


def of(rows: list[dict[str, Any]], check: str, target: str = "-") -> list[dict[str, Any]]:
    """Rows of a check."""
    found = [r for r in rows if r["check"] == check and r["target"] in (target, "-")]
    assert found
    return found


@pytest.fixture(scope="module")
def quiet() -> list[dict[str, Any]]:
    """The battery of a pool that says nothing."""
    return battery(made_pool(seed=1), resamples=200)


@pytest.fixture(scope="module")
def loud() -> list[dict[str, Any]]:
    """The battery of a pool whose transcripts tell the outcome."""
    return battery(made_pool(signal=0.9, seed=1), resamples=200)


def test_rows_are_those_of_the_table(quiet: list[dict[str, Any]]) -> None:
    where = {"benchmark": "b", "agent": "a"}
    table = AUDIT.from_rows([{**where, **r} for r in quiet])
    keys = table.select(list(AUDIT.key)).to_pylist()
    assert len({tuple(k.values()) for k in keys}) == table.num_rows


def test_without_a_signal_the_controls_pass_and_nothing_is_found(
    quiet: list[dict[str, Any]],
) -> None:
    for target in ("correctness", "answerability"):
        controls = of(quiet, "shuffled-tfidf", target)
        assert len(controls) == 3
        assert all(r["passed"] and r["low"] <= r["fold_mean"] <= r["high"] for r in controls)
        assert all(r["folds"] == 5 for r in controls)
    (transcript,) = of(quiet, "transcript", "correctness")
    assert transcript["low"] < 0.5 < transcript["high"]
    (same,) = of(quiet, "duplicates")
    assert (same["value"], same["passed"], same["note"]) == (0.0, True, None)


def test_with_a_signal_the_controls_still_pass(loud: list[dict[str, Any]]) -> None:
    (transcript,) = of(loud, "transcript", "correctness")
    (question,) = of(loud, "question-only", "correctness")
    assert transcript["value"] > 0.85
    assert question["low"] < 0.5 < question["high"]
    assert all(r["passed"] for r in of(loud, "shuffled-tfidf", "correctness"))


def test_a_text_in_two_folds_is_found() -> None:
    pool = made_pool()
    texts = pool.transcript.copy()
    twin = int(np.flatnonzero(pool.fold != pool.fold[0])[0])
    texts[twin] = texts[0]
    found = duplicates(replace(pool, transcript=texts))
    assert (found["value"], found["passed"]) == (1.0, False)
    assert found["note"] == f"{pool.episode_id[0]} = {pool.episode_id[twin]}"


def test_twice_in_one_fold_is_no_leak() -> None:
    pool = made_pool()
    texts = pool.transcript.copy()
    texts[int(np.flatnonzero(pool.fold == pool.fold[0])[1])] = texts[0]
    found = duplicates(replace(pool, transcript=texts))
    assert found["passed"]


def test_an_ending_that_tells_the_kind_is_found() -> None:
    pool = made_pool()
    answerable = pool.targets["answerability"] == 0.0
    ends = np.where(answerable, "answered", "abstained").astype(object)
    found = ending_only(replace(pool, end=ends), resamples=50)
    assert found["value"] == found["fold_mean"] == 1.0
    # The step cap is no abstention: it tells nothing.
    capped = np.where(answerable, "answered", "cap").astype(object)
    found = ending_only(replace(pool, end=capped), resamples=50)
    assert found["value"] == 0.5


def test_telemetry_is_read_as_doubt() -> None:
    pool = made_pool()
    features = pool.features.copy()
    features[:, FEATURES.index("ent_mean")] = pool.targets["answerability"]
    features[:, FEATURES.index("lp_mean")] = -pool.targets["answerability"]
    rows = telemetry(replace(pool, features=features), "answerability", resamples=50)
    found = {r["variant"]: r["value"] for r in rows}
    assert found["ent_mean"] == found["lp_mean"] == 1.0
    assert found["ent_max"] not in (0.0, 1.0)


def test_what_an_engine_or_a_benchmark_lacks_is_off_and_not_a_default() -> None:
    pool = made_pool(n=80)
    features = pool.features.copy()
    features[:, :4] = np.nan
    nothing = np.full(len(pool), np.nan)
    targets = {"answerability": nothing, "correctness": pool.targets["correctness"]}
    bare = replace(pool, features=features, targets=targets)
    rows = battery(bare, permutations=1, resamples=50)
    for r in of(rows, "telemetry", "correctness"):
        assert (r["value"], r["note"]) == (None, SILENT)
    for check in ("question-only", "transcript", "telemetry", "ending-only", "shuffled-tfidf"):
        assert {
            r["note"] for r in rows if (r["check"], r["target"]) == (check, "answerability")
        } == {UNJUDGED}


def test_one_class_is_undefined_and_not_a_number() -> None:
    pool = made_pool(n=60)
    nothing = np.full(60, np.nan)
    targets = {"answerability": nothing, "correctness": np.ones(60)}
    rows = battery(replace(pool, targets=targets), permutations=1, resamples=50)
    for r in rows:
        if r["target"] == "correctness":
            assert r["value"] is None
            assert r["passed"] is None
            assert r["note"]


def test_the_band_is_three_standard_deviations_of_the_fold_mean() -> None:
    """500 permutations of fixed scores: their spread is that of the formula."""
    rng = np.random.default_rng(1)
    fold = np.repeat(np.arange(5), 40)
    scores, positive = rng.normal(size=200), rng.random(200) < 0.3
    found = [fold_mean(scores, positive[rng.permutation(200)], fold)[0] for _ in range(500)]
    low, high = acceptance(int(positive.sum()), int((~positive).sum()))
    assert np.std(found) == pytest.approx((high - low) / 6, rel=0.15)
    assert np.mean(found) == pytest.approx(0.5, abs=0.01)


def test_pooled_auroc_of_shuffled_labels_is_biased_and_the_fold_mean_is_not() -> None:
    """A score that is each fold's base rate among the others: pooled it sits below one half."""
    rng = np.random.default_rng(2)
    fold = np.repeat(np.arange(5), 60)
    pooled, means = [], []
    for _ in range(60):
        positive = rng.random(300) < 0.2
        scores = np.array([positive[fold != f].mean() for f in fold])
        found = control("shuffled-tfidf", "correctness", "x", scores, positive, fold)
        pooled.append(found["value"])
        means.append(found["fold_mean"])
    assert np.mean(pooled) < 0.47
    assert np.mean(means) == 0.5


def test_out_of_fold_reads_no_text_of_its_own_fold() -> None:
    """A word that names the label inside a fold only, another in each: useless out-of-fold."""
    rng = np.random.default_rng(3)
    fold = np.repeat(np.arange(5), 30)
    positive = rng.random(150) < 0.5
    texts = np.array(
        [f"fold{f}label{int(p)} filler" for f, p in zip(fold, positive, strict=True)], dtype=object
    )
    (logits,) = out_of_fold(texts, [positive], fold, 0)
    assert fold_mean(logits, positive, fold)[0] == 0.5


def test_permutations_differ_and_keep_the_counts() -> None:
    positive = np.arange(50) < 12
    first, second = permuted(positive, 42, 0), permuted(positive, 42, 1)
    assert first.sum() == second.sum() == 12
    assert not np.array_equal(first, second)
    assert np.array_equal(first, permuted(positive, 42, 0))


def test_the_pool_comes_from_prefixes_and_tables() -> None:
    pool = made_pool(n=40)
    features = pool.features.copy()
    features[3, 0] = np.nan
    pool = replace(pool, features=features)
    again = TrainPool.of(snapshots_of(pool), *tables_of(pool))
    for name in ("episode_id", "group", "fold", "end", "question", "transcript"):
        assert np.array_equal(getattr(again, name), getattr(pool, name))
    for head in pool.targets:
        np.testing.assert_array_equal(again.targets[head], pool.targets[head])
        np.testing.assert_allclose(again.logits[head], pool.logits[head])
        np.testing.assert_allclose(again.first_logits[head], pool.first_logits[head])
    np.testing.assert_array_equal(again.features, pool.features)


def test_a_row_takes_no_unknown_column() -> None:
    with pytest.raises(TypeError, match="auroc"):
        row("head", auroc=0.5)


def test_measured_auroc_is_the_plain_one(quiet: list[dict[str, Any]]) -> None:
    pool = made_pool(seed=1)
    found = next(r for r in of(quiet, "head", "correctness") if r["variant"] == "t=T")
    use = pool.eligible("correctness")
    plain = auroc(pool.logits["correctness"][use], pool.targets["correctness"][use] > 0.5)
    assert found["value"] == plain
    assert found["n"] == use.sum()


def test_a_control_that_nothing_fails_has_not_passed() -> None:
    """Two positives in eight: every AUROC would be accepted."""
    fold, positive = np.repeat([0, 1], 4), np.array([True, False, False, False] * 2)
    found = control("shuffled-tfidf", "correctness", "x", np.arange(8.0), positive, fold)
    assert (found["passed"], found["note"]) == (None, VACUOUS)
    assert found["low"] < 0 < 1 < found["high"]


def test_without_a_fold_of_both_classes_a_control_is_undefined() -> None:
    fold, positive = np.repeat([0, 1], 4), np.repeat([True, False], 4)
    found = control("shuffled-tfidf", "correctness", "x", np.arange(8.0), positive, fold)
    assert (found["fold_mean"], found["passed"], found["note"]) == (None, None, NO_FOLD)
