"""What heads cost on GPUs: measured FLOPs against the textbook, memory that only grows."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.encoder_cost import (
    DEVICES,
    STATE_BYTES,
    Device,
    EncoderCost,
    Work,
    measure,
    predict,
    total_flops,
)
from cluster.forecast import AgentSize
from cluster.pilot import Mean, Pilot
from jobs.config import RunConfig
from jobs.plan_heads import heads_on_gpus, lines
from sentinel.errors import UserError

BASE = EncoderCost("base", 149_014_272, 220_594_176.0, 67_584.0, 613_776.0, 220_594_176.0, 44.0)
"""ModernBERT-base, as the first test measures it."""
HEADS = {
    "folds": 5, "epochs": 3, "validation": 0.1, "prefixes": None, "batch_size": 16,
    "max_train_tokens": 2048, "max_score_tokens": 4096,
}  # fmt: skip
WORK = [Work(1200.0, 2000.0, 4.0, (300.0, 600.0, 900.0, 5000.0))] * 5


@pytest.mark.slow
def test_modernbert_base_is_measured_without_its_weights() -> None:
    """transformers' default config is ModernBERT-base; 2·N·T forward FLOPs, 6·N·T of a step."""
    from transformers import ModernBertConfig

    shape = ModernBertConfig()
    assert (shape.hidden_size, shape.num_hidden_layers, shape.vocab_size) == (768, 22, 50368)
    assert shape.max_position_embeddings == 8192
    found = measure(shape, "base")
    numbers = [f.name for f in fields(EncoderCost) if f.name != "name"]
    for name in numbers:
        assert getattr(found, name) == pytest.approx(getattr(BASE, name), rel=1e-6), name
    outside_embeddings = found.parameters - shape.vocab_size * shape.hidden_size
    assert 3 * found.flops_token == pytest.approx(6 * outside_embeddings, rel=0.01)
    attention = 4 * shape.hidden_size * shape.num_hidden_layers  # QKᵀ and PV, 2 FLOPs each
    assert found.flops_pair == pytest.approx(attention, rel=1e-6)
    heads = 2 * shape.num_hidden_layers * shape.hidden_size
    assert 10 * heads < found.kept_bytes < 40 * heads  # ten to forty vectors per layer


def test_any_encoder_is_measured(tmp_path: Path) -> None:
    from tiny_encoders import write_encoder

    from sentinel.heads.encoders import encoder_shape

    for family in ("distilbert", "roberta"):
        shape = encoder_shape(str(write_encoder(tmp_path / family, family)))
        found = measure(shape, family)
        assert found.flops_pair == pytest.approx(4 * 32)
        assert found.flops_token > 0
        assert found.kept_bytes > 0


@given(st.integers(1, 64), st.integers(1, 8000))
def test_memory_grows_with_rows_and_length(rows: int, length: int) -> None:
    least = BASE.parameters * STATE_BYTES / 1e9
    assert least < BASE.training_gb(rows, length) < BASE.training_gb(rows + 1, length)
    assert BASE.training_gb(rows, length) < BASE.training_gb(rows, length + 1)


@given(st.floats(1, 200), st.integers(16, 8192), st.integers(1, 64))
def test_the_micro_batch_is_the_largest_that_fits(gb: float, length: int, wanted: int) -> None:
    rows = BASE.most_rows(gb, length, wanted)
    assert 0 <= rows <= wanted
    assert not rows or BASE.training_gb(rows, length) <= 0.92 * gb * (1 + 1e-9)
    assert rows == wanted or BASE.training_gb(rows + 1, length) > 0.92 * gb * (1 - 1e-9)


def test_flops_are_those_of_every_fit_and_score() -> None:
    """One agent, one length: folds·epochs passes over the pool, and each prefix scored once."""
    one = [Work(100.0, 150.0, 3.0, (500.0,))]
    forward = BASE.forward(500)
    found = total_flops(BASE, one, HEADS)
    trained = 5 * 3 * 100 * (0.9 * 3 * 3 + 0.1 * 3) * forward
    assert found == pytest.approx(2 * (trained + 150 * 3 * forward))
    # one prefix per episode and epoch: a third of the training, the same scoring
    assert total_flops(BASE, one, {**HEADS, "prefixes": 1}) < found
    assert total_flops(BASE, one * 2, HEADS) == pytest.approx(2 * found)
    cut = total_flops(BASE, WORK, {**HEADS, "max_train_tokens": 256, "max_score_tokens": 256})
    assert cut < total_flops(BASE, WORK, HEADS)


def test_rows_of_the_three_kinds_of_device() -> None:
    small, large, eight = predict(BASE, WORK, HEADS)
    assert [d.memory_gb for d in DEVICES] == [24, 80, 80]
    assert small["micro_batch"] < large["micro_batch"] == eight["micro_batch"] == 16
    assert small["accumulated"] == 2
    assert small["fit_gb"] < 24
    assert large["fit_gb"] < 80
    assert small["hours"] > large["hours"] == pytest.approx(8 * eight["hours"])
    assert eight["fits"] == 60
    (tight,) = predict(BASE, WORK, HEADS, [Device("tiny", 3, 10)])
    assert (tight["hours"], tight["micro_batch"]) == (None, None)
    assert "not one row fits" in "\n".join(lines([{**tight, "basis": ""}]))
    (lone,) = predict(BASE, WORK[:1], {**HEADS, "folds": 2}, [replace(DEVICES[2], count=64)])
    assert lone["fits"] == 6  # more devices than fits do not help
    (six,) = predict(BASE, WORK[:1], {**HEADS, "folds": 2}, [replace(DEVICES[2], count=6)])
    assert lone["hours"] == six["hours"]


def config(encoder: str, **heads: object) -> RunConfig:
    return RunConfig.from_mapping(
        {
            "name": "p",
            "benchmarks": [{"name": "clinic"}],
            "agents": [{"name": "a", "engine": "transformers", "model": "nano:a"}],
            "heads": {"encoder": encoder, "epochs": 3, "prefixes": None, **heads},
        }
    )


PILOT = Pilot(
    episodes=2,
    failed=0,
    seconds=1.0,
    load_seconds=1.0,
    peak_mb=1.0,
    turns=Mean(2.0, None),
    prompt_tokens=Mean(1.0, None),
    generated_tokens=Mean(1.0, None),
    dollars=None,
    prefix_chars=(90, 900, 2000, 90, 600, 9000),
)
SIZES = [AgentSize("clinic", "a", 1200, 0, PILOT)]


@pytest.mark.slow
def test_an_encoder_that_is_not_here_is_planned_as_modernbert_base() -> None:
    rows = heads_on_gpus(config("answerdotai/ModernBERT-base"), SIZES)
    assert [r["name"] for r in rows] == [d.name for d in DEVICES]
    assert "config of answerdotai/ModernBERT-base not here" in rows[0]["basis"]
    assert all(r["hours"] > 0 for r in rows)
    told = "\n".join(lines(rows))
    assert "A10, 24 GB" in told
    assert "12 fits of answerdotai/ModernBERT-base" in told


def test_a_folder_is_planned_by_its_own_config_and_nano_heads_not_at_all(tmp_path: Path) -> None:
    from tiny_encoders import write_encoder

    folder = str(write_encoder(tmp_path / "e", "distilbert"))
    window = {"max_train_tokens": 128, "max_score_tokens": 128}
    rows = heads_on_gpus(config(folder, **window), SIZES)
    assert "on the encoder's own config" in rows[0]["basis"]
    with pytest.raises(UserError, match="reads 128 tokens, 4096 are configured"):
        heads_on_gpus(config(folder), SIZES)
    with pytest.raises(UserError, match=r"no config\.json"):
        heads_on_gpus(config(str(tmp_path)), SIZES)
    assert heads_on_gpus(config("nano"), SIZES) == []
    assert heads_on_gpus(config("nano", kind="tfidf"), SIZES) == []
