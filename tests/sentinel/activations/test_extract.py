"""Parity with `output_hidden_states` on random models of every architecture that is named."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import ARCHITECTURES, random_model, random_passes

from sentinel.activations import extract as room
from sentinel.activations.positions import Pass
from sentinel.errors import UserError


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def model(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param)


def reference(model: Any, one: Pass, layers: list[int]) -> np.ndarray:
    """(rows, layers, d) of one pass alone, the last layer before the final norm."""
    with torch.inference_mode():
        states = model(
            torch.tensor(one.ids[None].astype(np.int64)), output_hidden_states=True
        ).hidden_states
    return np.stack([states[k][0, list(one.positions)].numpy() for k in layers], axis=1)


def test_rows_are_the_hidden_states_of_one_pass_alone(model: Any) -> None:
    model.config.tie_last_hidden_states = False  # else its last one is after the final norm
    layers = [3, 1, 2]
    passes = random_passes(9, seed=1)
    found = room.extract(room.backbone(model), passes, layers, tokens_per_batch=200)
    expected = np.concatenate([reference(model, p, layers) for p in passes])
    assert found.vectors.shape == expected.shape == (sum(len(p.positions) for p in passes), 3, 32)
    assert found.vectors.dtype == np.float16
    assert found.defined.all()
    np.testing.assert_allclose(found.vectors, expected, rtol=2**-10, atol=2e-5)
    assert found.tokens == sum(map(len, passes))
    assert found.clipped == 0


def test_the_last_layer_is_what_enters_the_final_norm(model: Any) -> None:
    model.config.tie_last_hidden_states = True  # the library's default
    (one,) = random_passes(1, seed=2)
    found = room.extract(room.backbone(model), [one], [3])
    body = model.base_model
    with torch.inference_mode():
        normed = body.norm(torch.from_numpy(found.vectors[:, 0]).float()).numpy()
        states = model(
            torch.tensor(one.ids[None].astype(np.int64)), output_hidden_states=True
        ).hidden_states
    np.testing.assert_allclose(
        normed, states[3][0, list(one.positions)].numpy(), rtol=2e-2, atol=2e-3
    )


def test_a_batch_gives_what_each_pass_gives_alone(model: Any) -> None:
    found = room.backbone(model)
    passes = random_passes(12, seed=3)
    together = room.extract(found, passes, [2], tokens_per_batch=10_000)
    alone = [room.extract(found, [p], [2], tokens_per_batch=1).vectors for p in passes]
    assert together.padding > 0
    np.testing.assert_allclose(together.vectors, np.concatenate(alone), rtol=2**-10, atol=2e-5)


def test_a_cached_decoding_step_sees_the_same_state() -> None:
    """What a live engine has after it ran the last generated token, key-value cache and all."""
    model = random_model("llama")
    (one,) = random_passes(1, seed=4)
    cache = transformers.cache_utils.DynamicCache()
    seen = []
    with torch.inference_mode():
        for token in one.ids.tolist():
            step = model(
                torch.tensor([[token]]),
                past_key_values=cache,
                use_cache=True,
                output_hidden_states=True,
            )
            seen.append(step.hidden_states[2][0, 0].numpy())
    expected = np.stack([seen[p] for p in one.positions])
    found = room.extract(room.backbone(model), [one], [2]).vectors[:, 0]
    np.testing.assert_allclose(found, expected, rtol=2**-10, atol=2e-5)


def test_no_blocks_output_outlives_the_next_block() -> None:
    """Memory grows with turns, not tokens: nothing token-sized is kept for later."""
    found = room.backbone(random_model("llama"))
    outputs: list[weakref.ref[torch.Tensor]] = []
    alive_at_third: list[bool] = []

    def watch(module: Any, inputs: Any, output: torch.Tensor) -> None:
        if len(outputs) == 2:
            alive_at_third.append(outputs[0]() is not None)
        outputs.append(weakref.ref(output))

    handles = [block.register_forward_hook(watch) for block in found.blocks]
    got = room.extract(found, random_passes(1, seed=5), [1, 2, 3])
    for handle in handles:
        handle.remove()
    assert alive_at_third == [False]
    assert all(ref() is None for ref in outputs)
    assert got.vectors.nbytes == got.vectors.shape[0] * 3 * 32 * 2


def test_blocks_above_the_deepest_wanted_one_do_not_run() -> None:
    found = room.backbone(random_model("llama"))
    ran: list[int] = []
    handles = [
        block.register_forward_pre_hook(lambda *_, k=k: ran.append(k))
        for k, block in enumerate(found.blocks, start=1)
    ]
    room.extract(found, random_passes(1, seed=6), [2])
    for handle in handles:
        handle.remove()
    assert ran == [1, 2]
    assert not any(block._forward_hooks for block in found.blocks)


@pytest.mark.parametrize("layers", [[0], [4], [-1], [1, 9], []])
def test_a_layer_that_does_not_exist_is_named(layers: list[int]) -> None:
    found = room.backbone(random_model("llama"))
    with pytest.raises(UserError, match="blocks 1…3"):
        room.extract(found, random_passes(1, seed=7), layers)


def test_a_pass_longer_than_the_window_and_strange_ids_are_named() -> None:
    found = room.backbone(random_model("llama"))
    long = Pass("clinic/a/7/0", np.ones(600, dtype=np.int32), (1,), (599,))
    with pytest.raises(UserError, match=r"clinic/a/7/0 has 600 tokens.*window is 512"):
        room.extract(found, [long], [1])
    strange = Pass("clinic/a/8/0", np.array([1, 999], dtype=np.int32), (1,), (1,))
    with pytest.raises(UserError, match=r"clinic/a/8/0 has token ids outside"):
        room.extract(found, [strange], [1])


def test_what_no_float16_holds_is_clipped_and_what_is_no_number_is_flagged() -> None:
    model = random_model("llama")
    found = room.backbone(model)
    passes = random_passes(3, seed=8)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(1e6)
    big = room.extract(found, passes, [1])
    assert big.clipped > 0
    assert big.defined.all()
    assert np.isfinite(big.vectors).all()
    assert np.abs(big.vectors.astype(np.float64)).max() == 65504
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    broken = room.extract(found, passes, [1, 2])
    assert broken.defined[:, 0].all()
    assert not broken.defined[:, 1].any()
    assert (broken.vectors[:, 1] == 0).all()


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_saved_model_is_loaded_without_its_head(tmp_path: Path, dtype: str) -> None:
    model = random_model("qwen2")
    model.save_pretrained(tmp_path)
    assert room.read_shape(tmp_path) == room.Shape(3, 32, 512)
    found = room.load_backbone(tmp_path, dtype)
    assert not hasattr(found.model, "lm_head")
    passes = random_passes(4, seed=9)
    expected = np.concatenate([reference(model, p, [2]) for p in passes])
    close = {"rtol": 2**-10, "atol": 2e-5} if dtype == "float64" else {"atol": 0.7}  # of about ±18
    np.testing.assert_allclose(room.extract(found, passes, [2]).vectors, expected, **close)


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    for load in (room.read_shape, room.load_backbone):
        with pytest.raises(UserError, match=tmp_path.name):
            load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "made_up", "auto_map": {"x": "y.py"}}')
    for load in (room.read_shape, room.load_backbone):
        with pytest.raises(UserError, match=tmp_path.name):
            load(tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_of_some_size_on_a_gpu() -> None:
    """Half a billion random weights in bfloat16: its own states, and memory that does not grow."""
    config = transformers.Qwen3Config(
        vocab_size=32_000,
        hidden_size=1536,
        intermediate_size=4608,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=96,
        max_position_embeddings=8192,
        initializer_range=0.05,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    model.config.tie_last_hidden_states = False
    found = room.backbone(model)
    passes = random_passes(12, seed=10, longest=4000, vocabulary=32_000)
    got = room.extract(found, passes, [4, 16], tokens_per_batch=16_384)
    for k, one in enumerate(passes[:3]):
        start = sum(len(p.positions) for p in passes[:k])
        with torch.inference_mode():
            states = model.model(
                torch.tensor(one.ids[None].astype(np.int64), device="cuda"),
                output_hidden_states=True,
            ).hidden_states
        for at, layer in enumerate((4, 16)):
            mine = got.vectors[start : start + len(one.positions), at].astype(np.float32)
            theirs = states[layer][0, list(one.positions)].float().cpu().numpy()
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(mine / scale, theirs / scale, atol=0.03)
        del states
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    room.extract(found, passes, [16], tokens_per_batch=8192)
    one_layer = torch.cuda.max_memory_allocated() - before
    torch.cuda.reset_peak_memory_stats()
    room.extract(found, passes, list(range(1, 17)), tokens_per_batch=8192)
    all_layers = torch.cuda.max_memory_allocated() - before
    assert all_layers < 1.2 * one_layer
