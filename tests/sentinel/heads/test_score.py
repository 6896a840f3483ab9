"""Scoring: padded = without padding = one by one, both heads at once, nothing not finite."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.fit import seeded
from sentinel.heads.model import HeadModel, attention, build_model, fastest_attention
from sentinel.heads.score import prepare, score_heads, score_tokens
from sentinel.heads.tokens import Specials, Tokenized, flatten

SPECIALS = Specials((1,), (2,), 0)
CONFIG = HeadConfig(width=32, layers=2, max_train_tokens=200, max_score_tokens=200)


def rows_of_ids(n: int = 40, longest: int = 180, seed: int = 0) -> Tokenized:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(10, 60, rng.integers(1, longest)) for _ in range(n)]
    return flatten(rows)


def made(seed: int = 0, outputs: int = 1, **changes: Any) -> HeadModel:
    with seeded(seed):
        return build_model(replace(CONFIG, **changes), 64, SPECIALS, outputs)


def local(seed: int = 0) -> HeadModel:
    """A head with ModernBERT's mix of full and local attention, 16 tokens each way."""
    from transformers import AutoModel, ModernBertConfig

    config = ModernBertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=256,
        local_attention=32,
        initializer_range=0.2,
        pad_token_id=0,
        bos_token_id=1,
        cls_token_id=1,
        eos_token_id=2,
        sep_token_id=2,
    )
    assert set(config.layer_types) == {"full_attention", "sliding_attention"}
    with seeded(seed):
        encoder = AutoModel.from_config(config, attn_implementation="sdpa")
        return HeadModel(encoder, 32, "mean-max", 1, 0.0)


@pytest.fixture(scope="module")
def segments() -> str:
    """Attention over rows laid end to end, one row at a time: what flash-attention computes."""
    from transformers import AttentionInterface

    def attend(
        module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        assert mask is None
        bounds = kwargs["cu_seq_lens_q"].tolist()
        assert max(np.diff(bounds)) == kwargs["max_length_q"] == kwargs["max_length_k"]
        out = torch.empty_like(query)
        for start, end in pairwise(bounds):
            q, k, v = (x[:, :, start:end] for x in (query, key, value))
            at, near = torch.arange(end - start), None
            if kwargs["sliding_window"] is not None:  # one less on each side, as flash-attention's
                near = (at[:, None] - at[None]).abs() < kwargs["sliding_window"]
            out[:, :, start:end] = scaled_dot_product_attention(
                q, k, v, attn_mask=near, scale=kwargs["scaling"]
            )
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("segments", attend)
    return "segments"


@pytest.mark.parametrize("pooling", ["mean", "cls", "mean-max", "local"])
def test_without_padding_as_padded_as_one_by_one(pooling: str, segments: str) -> None:
    model = local() if pooling == "local" else made(pooling=pooling)
    tokens = rows_of_ids()
    padded = score_tokens(model, tokens, SPECIALS, 200, batch_tokens=4000)
    alone = np.concatenate(
        [score_tokens(model, tokens.take(np.array([i])), SPECIALS, 200) for i in range(40)]
    )
    np.testing.assert_allclose(padded, alone, atol=2e-5)
    model.eval()
    ids, mask = map(torch.from_numpy, tokens.batch(np.arange(40), SPECIALS, 200))
    with torch.inference_mode(), attention(model, segments):
        assert model.unpadded
        without = model(ids, mask).numpy()
    np.testing.assert_allclose(without, padded, atol=2e-5)
    assert np.ptp(padded) > 0.005
    assert not model.unpadded
    assert model.encoder.config._attn_implementation == "sdpa"


def test_attention_is_set_back_also_after_a_failure(segments: str) -> None:
    model = made()
    with pytest.raises(RuntimeError), attention(model, segments):
        model(torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool))  # ids that are no integers
    assert (model.unpadded, model.encoder.config._attn_implementation) == (False, "sdpa")
    assert fastest_attention(model, "cpu") == "sdpa"


def test_heads_together_score_as_each_alone() -> None:
    pair, shared = [made(1), made(2)], made(3, outputs=2)
    pair[0].train()
    tokens = rows_of_ids()
    prepared = prepare(tokens, SPECIALS, 200, 2000)
    together = score_heads([*pair, shared], prepared)
    assert (together.shape, together.dtype) == ((40, 4), np.float64)
    for model, columns in zip((*pair, shared), ([0], [1], [2, 3]), strict=True):
        alone = score_tokens(model, tokens, SPECIALS, 200, batch_tokens=2000)
        np.testing.assert_array_equal(together[:, columns], alone)
    assert pair[0].training  # dropout was off meanwhile, or the two would differ


def test_equal_prefixes_are_read_once_and_batches_waste_little() -> None:
    tokens = rows_of_ids(60, 180)
    five = tokens.take(np.tile(np.arange(60), 5))
    prepared = prepare(five, SPECIALS, 100, 3000)
    assert (len(prepared), len(prepared.distinct)) == (300, 60)
    assert prepared.tokens == int(tokens.lengths(SPECIALS, 100).sum())
    assert 0.0 < prepared.padding < 0.25
    model = made(max_score_tokens=100, max_train_tokens=100)
    found = score_heads([model], prepared).reshape(5, 60)
    np.testing.assert_array_equal(found, np.tile(found[0], (5, 1)))


def test_nothing_to_score_is_no_rows() -> None:
    nothing = flatten([])
    prepared = prepare(nothing, SPECIALS, 100)
    assert prepared.padding == 0.0
    assert score_heads([made(outputs=2)], prepared).shape == (0, 2)


def test_a_logit_that_is_not_finite_is_named() -> None:
    model = made()
    with torch.no_grad():
        model.out.bias.fill_(float("nan"))
    with pytest.raises(HeadFailure, match=r"logits of 40 prefixes are not finite \(attention sdpa"):
        score_tokens(model, rows_of_ids(), SPECIALS, 200)
