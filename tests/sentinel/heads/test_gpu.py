"""ModernBERT-base with random weights on a GPU: padded = without padding = one by one, no NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sentinel.heads.fit import seeded
from sentinel.heads.model import FLASH, HeadModel, attention, fastest_attention
from sentinel.heads.score import prepare, score_heads
from sentinel.heads.tokens import Specials, Tokenized, flatten

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SPECIALS = Specials((50281,), (50282,), 50283)
WINDOW = 4096
SINGLE, HALF = 2e-4, 2e-2
"""Tolerances of logits about 1 apart: float32 kernels, and bfloat16 (0.0012 on a CPU)."""


@pytest.fixture(scope="module")
def base() -> HeadModel:
    from transformers import AutoModel, ModernBertConfig

    config = ModernBertConfig()
    with seeded(0):
        encoder = AutoModel.from_config(config, attn_implementation="sdpa")
        model = HeadModel(encoder, config.hidden_size, "mean-max", 2, 0.1)
    return model.to("cuda").eval()


def rows_of_ids(n: int = 48, longest: int = 5000) -> Tokenized:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(6.0, 1.0, n), longest).astype(int) + 1
    lengths[0] = longest  # one that loses its beginning
    return flatten([rng.integers(10, 50_000, size) for size in lengths])


def padded(model: HeadModel, tokens: Tokenized, rows: np.ndarray) -> np.ndarray:
    """(b, outputs) logits of one padded batch in float32, with PyTorch's own attention."""
    ids, mask = tokens.batch(rows, SPECIALS, WINDOW)
    with torch.inference_mode(), attention(model, "sdpa"):
        found = model(torch.from_numpy(ids).cuda(), torch.from_numpy(mask).cuda())
    return np.asarray(found.double().cpu().numpy())


@pytest.fixture(scope="module")
def one_by_one(base: HeadModel) -> np.ndarray:
    tokens = rows_of_ids()
    found = [padded(base, tokens, np.array([i])) for i in range(len(tokens))]
    logits = np.concatenate(found)
    assert np.isfinite(logits).all()
    assert (np.ptp(logits, axis=0) > 0.2).all()
    return logits


def test_padded_as_one_by_one(base: HeadModel, one_by_one: np.ndarray) -> None:
    tokens = rows_of_ids()
    for start in range(0, len(tokens), 8):
        rows = np.arange(start, start + 8)
        np.testing.assert_allclose(padded(base, tokens, rows), one_by_one[rows], atol=SINGLE)


def test_scores_are_those_of_one_by_one(base: HeadModel, one_by_one: np.ndarray) -> None:
    tokens = rows_of_ids()
    close = HALF if fastest_attention(base, "cuda") == FLASH else SINGLE
    for budget in (4096, 65_536):
        prepared = prepare(tokens, SPECIALS, WINDOW, budget)
        found = score_heads([base], prepared, device="cuda")
        np.testing.assert_allclose(found, one_by_one, atol=close)
    assert base.encoder.config._attn_implementation == "sdpa"


def test_without_padding_as_padded_with_flash_attention(
    base: HeadModel, one_by_one: np.ndarray
) -> None:
    if fastest_attention(base, "cuda") != FLASH:
        pytest.skip("no flash-attn package")
    tokens = rows_of_ids()
    ids, mask = (torch.from_numpy(x).cuda() for x in tokens.batch(np.arange(12), SPECIALS, WINDOW))
    found = []
    with torch.inference_mode(), attention(base, FLASH):
        assert base.unpadded
        found.append(base(ids, mask).double().cpu().numpy())
        base.unpadded = False  # transformers' own way: unpadded and padded again in every layer
        found.append(base(ids, mask).double().cpu().numpy())
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], found[1], atol=HALF)
    np.testing.assert_allclose(found[0], one_by_one[:12], atol=HALF)


def test_a_training_step_of_either_attention_has_finite_gradients(base: HeadModel) -> None:
    names = dict.fromkeys(["sdpa", fastest_attention(base, "cuda")])
    tokens = rows_of_ids()
    ids, mask = (torch.from_numpy(x).cuda() for x in tokens.batch(np.arange(8), SPECIALS, 1024))
    base.train()
    try:
        for name in names:
            base.zero_grad(set_to_none=True)
            with attention(base, name):
                logits = base(ids, mask)
            torch.nn.functional.softplus(logits).mean().backward()
            grads = [p.grad for p in base.parameters() if p.grad is not None]
            assert len(grads) > 100
            assert all(bool(torch.isfinite(g).all()) for g in grads), name
    finally:
        base.zero_grad(set_to_none=True)
        base.eval()
