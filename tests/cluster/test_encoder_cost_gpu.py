"""The plan's memory against a real CUDA device: ModernBERT-base, random weights from its config."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sentinel.heads.config import HeadConfig
from sentinel.heads.tokens import Specials, Tokenized

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SPECIALS = Specials((1,), (2,), 0)
ROWS, LENGTH = 8, 1024


@pytest.fixture(scope="module")
def cuda() -> Iterator[Any]:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    yield torch
    torch.cuda.empty_cache()


def config(**changes: Any) -> HeadConfig:
    settings = {
        "encoder": "modernbert-base-shape",
        "epochs": 1,
        "batch_size": ROWS,
        "learning_rate": 5e-5,
        "pooling": "mean",
        "max_train_tokens": LENGTH,
        "max_score_tokens": LENGTH,
        "dtype": "bfloat16",
        "prefixes": None,
        **changes,
    }
    return HeadConfig.of(settings)


def base(torch: Any, settings: HeadConfig) -> Any:
    """A head on ModernBERT-base's shape with random weights: nothing is downloaded."""
    from transformers import AutoModel, ModernBertConfig

    from sentinel.heads.model import HeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = AutoModel.from_config(ModernBertConfig(), attn_implementation="sdpa")
        return HeadModel(encoder, 768, settings.pooling, 1, settings.dropout)


def rows(n: int, shortest: int = LENGTH - 2) -> Tokenized:
    rng = np.random.default_rng(0)
    parts = [rng.integers(10, 50_000, rng.integers(shortest, LENGTH - 1)) for _ in range(n)]
    starts = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
    return Tokenized(np.concatenate(parts).astype(np.int32), starts)


@pytest.mark.parametrize(("count", "shortest"), [(ROWS, LENGTH - 2), (ROWS, LENGTH // 2)])
def test_a_training_step_takes_the_memory_that_was_planned(
    cuda: Any, count: int, shortest: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Full rows and padded ones: within a third of the plan, and never far above it."""
    from transformers import ModernBertConfig

    from cluster.encoder_cost import CONTEXT_GB, measure
    from sentinel.heads.strategy import Strategy

    settings = config()
    strategy = Strategy("cuda", settings.dtype)
    strategy.prepare(base(cuda, settings), settings, 1)
    ids, mask = rows(count, shortest).batch(np.arange(count), SPECIALS, LENGTH)
    cuda.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        logits = strategy.logits(cuda.from_numpy(ids), cuda.from_numpy(mask))
        strategy.backward(logits.square().mean())
        strategy.step(1e-5)
        cuda.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    seen = cuda.cuda.max_memory_allocated() / 1e9
    cost = measure(ModernBertConfig(), "base")
    planned = cost.training_gb(*ids.shape) - CONTEXT_GB
    flops = 3 * ids.shape[0] * cost.forward(ids.shape[1])
    with capsys.disabled():
        print(
            f"\nstep of {ids.shape}: {seen:.2f} GB, planned {planned:.2f}; "
            f"{min(seconds):.3f} s, {flops / min(seconds) / 1e12:.0f} TFLOP/s"
        )
    assert 0.67 * planned < seen < 1.15 * planned


def test_a_fit_learns_on_the_device(cuda: Any) -> None:
    """A rare token is found by a small encoder, in bfloat16, through the training loop."""
    from sentinel.heads.fit import fit_head, seeded
    from sentinel.heads.model import build_model
    from sentinel.heads.strategy import Strategy

    settings = HeadConfig(
        width=64, layers=2, epochs=6, batch_size=16, learning_rate=3e-3,
        max_train_tokens=64, max_score_tokens=64, prefixes=None, dtype="bfloat16",
    )  # fmt: skip
    rng = np.random.default_rng(1)
    parts = [rng.integers(10, 60, 40) for _ in range(160)]
    target = (np.arange(160) % 2).astype(float)
    for part, positive in zip(parts, target, strict=True):
        if positive:
            part[rng.integers(40)] = 7
    starts = (np.arange(161) * 40).astype(np.int64)
    tokens = Tokenized(np.concatenate(parts).astype(np.int32), starts)
    with seeded(2):
        model = build_model(settings, 64, SPECIALS)
    fit = fit_head(
        model, tokens, target, np.arange(120), np.arange(120, 160), SPECIALS, settings, 2,
        strategy=Strategy("cuda", settings.dtype),
    )  # fmt: skip
    assert fit.history[-1]["stop_auroc"] > 0.9
