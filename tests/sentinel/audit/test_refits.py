"""The training loop again: on permuted labels, and with other seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_train_pool import made_pool, snapshots_of
from tiny_encoders import write_encoder

from sentinel.audit.refits import Fold, loop_row, one_fold, permuted, seed_rows
from sentinel.bootstrap import auroc
from sentinel.heads.config import HeadConfig

TFIDF = HeadConfig(kind="tfidf")
SMALL: dict[str, Any] = {
    "width": 32,
    "layers": 1,
    "epochs": 12,
    "learning_rate": 1e-2,
    "patience": 12,
    "prefixes": None,
    "max_train_tokens": 96,
    "max_score_tokens": 96,
}


def test_a_permutation_is_one_of_episodes() -> None:
    snapshots = snapshots_of(made_pool(n=80, signal=1.0))
    again = permuted(snapshots, "correctness", 5)
    before, after = snapshots.target("correctness"), again.target("correctness")
    assert np.array_equal(np.isnan(before), np.isnan(after))
    assert np.nansum(before) == np.nansum(after)
    assert np.array_equal(after[0::2], after[1::2], equal_nan=True)  # one outcome per episode
    assert not np.array_equal(before, after, equal_nan=True)
    assert np.array_equal(snapshots.text, again.text)
    moved = permuted(snapshots, "answerability", 5)
    assert moved.answerable.sum() == snapshots.answerable.sum()
    assert np.array_equal(snapshots.target("correctness"), before, equal_nan=True)


@pytest.fixture(
    scope="module",
    params=["tfidf", *(pytest.param(n, marks=pytest.mark.slow) for n in ("nano", "minilm"))],
)
def folds(request: Any, tmp_path_factory: Any) -> tuple[dict[int, Fold], dict[int, Fold]]:
    """Folds of the real loop on labels as they are, and permuted, for every kind of encoder."""
    config = TFIDF
    if request.param != "tfidf":
        encoder = "nano"
        if request.param != "nano":  # pretrained ones are read from a folder
            encoder = str(write_encoder(tmp_path_factory.mktemp("encoder"), request.param))
        config = HeadConfig(encoder=encoder, **SMALL)
    many = 5 if config is TFIDF else 2
    snapshots = snapshots_of(made_pool(n=200, folds=many, signal=0.95))
    plain = {f: one_fold(snapshots, "correctness", f, config, 1) for f in range(many)}
    mixed = {f: one_fold(snapshots, "correctness", f, config, 1, shuffle=7) for f in range(many)}
    return plain, mixed


def test_the_loop_finds_the_signal_and_not_the_permutation(
    folds: tuple[dict[int, Fold], dict[int, Fold]],
) -> None:
    plain, mixed = folds
    logit = np.concatenate([f.logit for f in plain.values()])
    positive = np.concatenate([f.positive for f in plain.values()])
    least = 0.9 if len(plain) == 5 else 0.7  # an encoder of one layer after a hundred episodes
    assert auroc(logit, positive) > least  # type: ignore[operator]
    assert not loop_row("correctness", "own", plain)["passed"]
    found = loop_row("correctness", "own", mixed)
    assert found["passed"]
    assert (found["folds"], found["n"]) == (len(mixed), len(positive))
    assert found["missing"] == 0


def test_every_eligible_episode_is_read_once_at_its_end(
    folds: tuple[dict[int, Fold], dict[int, Fold]],
) -> None:
    pool = made_pool(n=200, signal=0.95)
    read = np.concatenate([f.episode_id for f in folds[0].values()])
    assert sorted(read) == sorted(pool.episode_id[pool.eligible("correctness")])


def test_one_class_in_the_other_folds_gives_no_logit() -> None:
    pool = made_pool(n=60)
    target = np.where(pool.fold == 0, 1.0, 0.0)
    pool.targets["correctness"] = target  # type: ignore[index]
    found = one_fold(snapshots_of(pool), "correctness", 0, TFIDF, 0)
    assert len(found.logit)
    assert np.isnan(found.logit).all()


def test_the_spread_over_seeds_by_hand() -> None:
    positive = np.array([False, False, True, True])
    episode = np.array(["a", "b", "c", "d"], dtype=object)

    def seed(*logit: float) -> dict[int, Fold]:
        return {0: Fold(episode, positive, np.array(logit))}

    seeds = {"seed 0": seed(1, 2, 3, 4), "seed 1": seed(1, 3, 2, 4), "seed 2": seed(4, 3, 2, 1)}
    *rows, spread = seed_rows("correctness", seeds)
    assert [r["value"] for r in rows] == [1.0, 0.75, 0.0]
    assert spread["value"] == pytest.approx(np.std([1.0, 0.75, 0.0], ddof=1))
    assert spread["n"] == 3


def test_a_seed_without_an_auroc_leaves_no_spread() -> None:
    none = {0: Fold(np.array(["a"], dtype=object), np.array([True]), np.array([1.0]))}
    *_, spread = seed_rows("correctness", {"seed 0": none, "seed 1": none, "seed 2": none})
    assert spread["value"] is None
    assert spread["note"]
