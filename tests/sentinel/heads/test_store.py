"""Only new prefixes go through a head whose scores are kept, also after a kill."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.fit import seeded
from sentinel.heads.model import HeadModel, build_model
from sentinel.heads.score import score_tokens
from sentinel.heads.store import ScoreStore, head_key, score_new
from sentinel.heads.tokens import Specials, Tokenized, flatten

SPECIALS = Specials((1,), (2,), 0)
WINDOW = 100


def made(seed: int = 0, outputs: int = 2) -> HeadModel:
    config = HeadConfig(width=16, layers=1, max_train_tokens=WINDOW, max_score_tokens=WINDOW)
    with seeded(seed):
        return build_model(config, 64, SPECIALS, outputs)


def pool(n: int, seed: int = 0) -> Tokenized:
    rng = np.random.default_rng(seed)
    return flatten([rng.integers(10, 60, rng.integers(1, 150)) for _ in range(n)])


def opened(path: Path, model: HeadModel) -> ScoreStore:
    return ScoreStore(path, head_key(model, SPECIALS, WINDOW), 2)


def counted(model: HeadModel) -> list[int]:
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    return seen


def test_a_grown_pool_costs_its_new_prefixes(tmp_path: Path) -> None:
    model, tokens = made(), pool(50)
    expected = score_tokens(model, tokens, SPECIALS, WINDOW)
    seen = counted(model)
    some = np.r_[0:30, 0:5]
    first = score_new(model, tokens.take(some), SPECIALS, WINDOW, opened(tmp_path / "s", model))
    np.testing.assert_allclose(first, expected[some], atol=2e-5)
    assert sum(seen) == 30
    store = opened(tmp_path / "s", model)  # read back from the file
    assert len(store) == 30
    again = score_new(model, tokens, SPECIALS, WINDOW, store)
    np.testing.assert_array_equal(again[:30], first[:30])
    np.testing.assert_allclose(again, expected, atol=2e-5)
    assert sum(seen) == 50


def test_an_empty_store_changes_no_bit(tmp_path: Path) -> None:
    model, tokens = made(), pool(50)
    expected = score_tokens(model, tokens, SPECIALS, WINDOW)
    store = opened(tmp_path / "new" / "s", model)
    found = score_new(model, tokens, SPECIALS, WINDOW, store, flush_tokens=300)
    np.testing.assert_array_equal(found, expected)
    assert score_new(model, tokens.take(np.arange(0)), SPECIALS, WINDOW, store).shape == (0, 2)


def test_a_kill_costs_what_was_not_written(tmp_path: Path) -> None:
    model, tokens, path = made(), pool(40), tmp_path / "s"
    expected = score_new(model, tokens, SPECIALS, WINDOW, opened(path, model))
    whole = path.read_bytes()
    size = 16 + 2 * 8
    path.write_bytes(whole[: -10 * size - 5])  # ten records and a part of another are lost
    seen = counted(model)
    store = opened(path, model)
    assert len(store) == 29
    np.testing.assert_allclose(
        score_new(model, tokens, SPECIALS, WINDOW, store), expected, atol=2e-5
    )
    assert sum(seen) == 11
    assert len(path.read_bytes()) == len(whole)
    assert len(opened(path, model)) == 40


@pytest.mark.parametrize("what", ["weights", "window", "damage"])
def test_scores_of_another_head_are_not_taken(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokens, path = made(), pool(10), tmp_path / "s"
    score_new(model, tokens, SPECIALS, WINDOW, opened(path, model))
    key = head_key(model, SPECIALS, WINDOW)
    if what == "weights":
        with torch.no_grad():
            model.out.bias[1] += 1e-6
        key = head_key(model, SPECIALS, WINDOW)
    elif what == "window":
        key = head_key(model, SPECIALS, WINDOW - 1)
    else:
        path.write_bytes(b"\0" + path.read_bytes())
    with caplog.at_level(logging.WARNING):
        assert len(ScoreStore(path, key, 2)) == 0
    assert "begun anew" in caplog.text
    assert len(ScoreStore(path, key, 2)) == 0


def test_a_logit_that_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    model = made()
    with torch.no_grad():
        model.out.weight.fill_(float("inf"))
    store = opened(tmp_path / "s", model)
    with pytest.raises(HeadFailure, match="not finite"):
        score_new(model, pool(5), SPECIALS, WINDOW, store)
    assert len(opened(tmp_path / "s", model)) == 0


def test_a_fold_takes_up_the_scores_that_a_killed_pass_left(tmp_path: Path) -> None:
    from made_episodes import made_episode, made_tasks

    from sentinel.heads.config import CORRECTNESS
    from sentinel.heads.folds import fit_fold
    from sentinel.heads.snapshots import build, plan

    tasks = {t["task_id"]: t for t in made_tasks()}
    episodes = [made_episode(t) for t in tasks.values()]
    snapshots, _ = build(episodes, tasks, {e.episode_id: " n " in str(e.action) for e in episodes})
    config = HeadConfig(width=16, layers=1, epochs=1, validation=0.2)
    planned = plan(snapshots, CORRECTNESS, 0, validation=0.2)
    first = fit_fold(snapshots, planned, config, 3, checkpoints=tmp_path)
    path = tmp_path / "scores.bin"
    data = path.read_bytes()
    path.write_bytes(data[:-8] + np.float64(123.0).tobytes())  # a mark on the last kept logit
    again = fit_fold(snapshots, planned, config, 3, checkpoints=tmp_path)
    marked = again.logits == 123.0
    assert marked.any()
    np.testing.assert_array_equal(again.logits[~marked], first.logits[~marked])
    plain = fit_fold(snapshots, planned, config, 3)
    np.testing.assert_array_equal(plain.logits, first.logits)
