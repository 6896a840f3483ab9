"""The encoder heads: learning, determinism, early stopping, padding, saving, failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sentinel.errors import UserError
from sentinel.heads.batches import bucketed, class_weights, hide, masked_loss
from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.fit import _slack, fit_head, seeded
from sentinel.heads.model import HeadModel, build_model, load_head, save_head
from sentinel.heads.score import score_tokens
from sentinel.heads.tokens import Specials, Tokenized

SPECIALS = Specials((1,), (2,), 0)
CONFIG = HeadConfig(
    width=32,
    layers=1,
    epochs=4,
    batch_size=8,
    learning_rate=5e-3,
    max_train_tokens=24,
    max_score_tokens=24,
    token_dropout=0.0,
    prefixes=None,
)


def made_tokens(n: int = 96, seed: int = 0) -> tuple[Tokenized, np.ndarray]:
    """Rows of random ids; a row is positive iff id 7 occurs."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(10, 40, rng.integers(3, 15)) for _ in range(n)]
    target = (np.arange(n) % 2).astype(float)
    for row, positive in zip(rows, target, strict=True):
        if positive:
            row[rng.integers(len(row))] = 7
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    return Tokenized(np.concatenate(rows).astype(np.int32), starts), target


def fitted(config: HeadConfig = CONFIG, seed: int = 3, outputs: int = 1) -> tuple[HeadModel, list]:
    tokens, target = made_tokens()
    targets = np.stack([target, np.where(np.arange(96) < 48, 1 - target, np.nan)], 1)[:, :outputs]
    with seeded(seed):
        model = build_model(config, 64, SPECIALS, outputs)
    fit = fit_head(model, tokens, targets, np.arange(72), np.arange(72, 96), SPECIALS, config, seed)
    return fit.model, fit.history


@pytest.fixture(scope="module")
def trained() -> tuple[HeadModel, list]:
    return fitted()


def logits(model: HeadModel, tokens: Tokenized, budget: int = 400) -> np.ndarray:
    with seeded(0):
        return score_tokens(model, tokens, SPECIALS, 24, batch_tokens=budget)


def test_it_learns(trained: tuple[HeadModel, list]) -> None:
    tokens, target = made_tokens(60, seed=9)
    found = logits(trained[0], tokens)[:, 0]
    assert found.dtype == np.float64
    assert found[target == 1].min() > found[target == 0].max()
    assert trained[1][-1]["stop_auroc"] > 0.95
    assert trained[1][-1]["tokens_per_second"] > 0


def test_same_seed_same_result_whatever_the_process_did_before(trained: tuple) -> None:
    torch.rand(5)
    again, _ = fitted()
    for name, value in again.state_dict().items():
        assert torch.equal(value, trained[0].state_dict()[name])
    other, _ = fitted(seed=4)
    assert not torch.equal(other.out.weight, again.out.weight)


def test_the_global_random_state_and_threads_are_left_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)  # a fit takes one
    try:
        fitted(replace(CONFIG, epochs=1))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("pooling", ["mean", "cls", "mean-max"])
def test_padding_and_batching_change_nothing(pooling: str) -> None:
    tokens, _ = made_tokens(40, seed=5)
    with seeded(0):
        model = build_model(replace(CONFIG, pooling=pooling), 64, SPECIALS)
    together = logits(model, tokens, budget=100_000)
    alone = np.concatenate([logits(model, tokens.take(np.array([i]))) for i in range(40)])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_saved_heads_score_alike(trained: tuple[HeadModel, list], tmp_path: Path) -> None:
    tokens, _ = made_tokens(20, seed=6)
    save_head(tmp_path / "h", trained[0], CONFIG, {"fold": None})
    model, config, meta = load_head(tmp_path / "h")
    assert (config, meta) == (CONFIG, {"fold": None})
    np.testing.assert_array_equal(logits(model, tokens), logits(trained[0], tokens))
    (tmp_path / "h" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(UserError, match="cannot be read"):
        load_head(tmp_path / "h")


def test_two_targets_share_an_encoder_and_masked_rows_count_nothing() -> None:
    model, _ = fitted(replace(CONFIG, epochs=6), outputs=2)
    tokens, target = made_tokens(60, seed=9)
    found = logits(model, tokens)
    assert found.shape == (60, 2)
    assert np.corrcoef(found[:, 0], target)[0, 1] > 0.5
    assert np.corrcoef(found[:, 1], target)[0, 1] < -0.5
    one = torch.tensor([[2.0, -1.0]])
    ones = np.ones((2, 2), dtype=np.float32)
    masked = masked_loss(one, torch.tensor([[1.0, float("nan")]]), ones)
    assert float(masked) == pytest.approx(float(torch.nn.functional.softplus(-one[0, 0])))


def test_the_best_epoch_is_kept_and_patience_ends_the_fit() -> None:
    tokens, target = made_tokens()
    target = np.concatenate([target[:72], 1 - target[72:]])  # stopping rows disagree: only worse
    with seeded(0):
        model = build_model(CONFIG, 64, SPECIALS)
    config = replace(CONFIG, epochs=12, patience=2)
    fit = fit_head(model, tokens, target, np.arange(72), np.arange(72, 96), SPECIALS, config, 0)
    assert len(fit.history) == fit.best_epoch + 2 < 12


def test_small_splits_do_not_choose_an_early_epoch_by_noise() -> None:
    targets = np.array([[0.0], [0.0], [1.0], [1.0], [1.0]], dtype=np.float32)
    groups = np.array(["a", "a", "b", "c", "c"], dtype=object)
    assert _slack(targets, groups, "auroc") == pytest.approx((4 / (12 * 2)) ** 0.5)  # episodes
    assert _slack(targets, groups, "loss") == 0.0
    assert _slack(targets[:2], None, "auroc") == 0.0  # one class: AUROC is undefined
    many = _slack(np.arange(2000).reshape(-1, 1) % 2.0, None, "auroc")
    assert many < 0.02


def test_without_stopping_rows_the_last_epoch_is_kept() -> None:
    tokens, target = made_tokens()
    with seeded(0):
        model = build_model(CONFIG, 64, SPECIALS)
    config = replace(CONFIG, epochs=2)
    fit = fit_head(model, tokens, target, np.arange(96), np.arange(0), SPECIALS, config, 0)
    assert fit.best_epoch == 2


def test_a_loss_that_is_not_finite_stops_the_fit_with_its_cause() -> None:
    tokens, target = made_tokens()
    with seeded(0):
        model = build_model(CONFIG, 64, SPECIALS)
    with torch.no_grad():
        model.out.weight.fill_(float("inf"))
    with pytest.raises(HeadFailure, match="loss became"):
        fit_head(model, tokens, target, np.arange(72), np.arange(72, 96), SPECIALS, CONFIG, 0)


def test_an_encoder_with_a_shorter_window_is_refused(tmp_path: Path) -> None:
    with seeded(0):
        build_model(CONFIG, 64, SPECIALS).encoder.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="reads 24 tokens, 99 are configured"):
        build_model(replace(CONFIG, encoder=str(tmp_path), max_train_tokens=99), 64, SPECIALS)


def test_prefixes_draw_a_share_of_the_rows_per_epoch() -> None:
    tokens, target = made_tokens()
    groups = np.array([f"e{i // 4}" for i in range(96)], dtype=object)
    config = replace(CONFIG, prefixes=1, epochs=1)
    with seeded(0):
        model = build_model(config, 64, SPECIALS)
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    rows, none = np.arange(96), np.arange(0)
    fit_head(model, tokens, target, rows, none, SPECIALS, config, 0, groups=groups)
    assert sum(seen) == 24


def test_hidden_tokens_are_a_share_of_the_ordinary_ones() -> None:
    ids = torch.randint(3, 50, (40, 50))
    ids[:, 0], ids[:, -1] = 1, 2
    with seeded(0):
        shown = hide(ids, SPECIALS, 0.2)
    assert torch.equal(shown[:, [0, -1]], ids[:, [0, -1]])
    changed = shown != ids
    assert (shown[changed] == SPECIALS.pad).all()
    assert 0.15 < float(changed.float().mean()) < 0.25
    assert hide(ids, SPECIALS, 0.0) is ids


def test_batches_are_of_similar_length_and_hold_every_row_once() -> None:
    lengths = np.random.default_rng(0).integers(5, 500, 1000)
    rng = np.random.default_rng(1)
    batches = list(bucketed(np.arange(1000), lengths, 16, rng))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(1000))
    padded = sum(lengths[b].max() * len(b) for b in batches)
    assert padded < 1.15 * lengths.sum()


def test_class_weights_balance_and_keep_the_scale() -> None:
    targets = np.array([[1.0], [0.0], [0.0], [0.0], [np.nan]], dtype=np.float32)
    weights = class_weights(targets, "balanced")
    assert weights.ravel().tolist() == pytest.approx([4 / 6, 2.0])
    assert (weights[0] * 3 + weights[1]) / 4 == pytest.approx(1.0)
    assert class_weights(targets, "none").ravel().tolist() == [1.0, 1.0]
