"""Sizes of models from their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from cluster.engines.shape import folder_shape, missing_shards, shape_of, weights_stored
from sentinel.errors import UserError
from sentinel.nano import weights_dir

# Widths of published models and their published parameter counts.
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
}
QWEN_CODER_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
QWEN3_1_7B = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("config", "billions", "kv_kib"),
    [(LLAMA_8B, 8.03, 128), (QWEN_CODER_7B, 7.62, 56), (QWEN3_1_7B, 1.72, 112)],
)
def test_parameters_and_cache_from_the_widths(
    config: dict[str, Any], billions: float, kv_kib: int
) -> None:
    shape = shape_of(config, "m")
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    assert shape.kv_bytes("bfloat16") == kv_kib * 1024
    assert shape.weights_bytes("float32") == 4 * shape.parameters


def test_the_window_counts_scaled_positions() -> None:
    assert shape_of(LLAMA_8B, "m").window == 131072  # its config states the scaled one
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert shape_of({**QWEN_CODER_7B, "rope_scaling": yarn}, "m").window == 131072
    linear = {"type": "linear", "factor": 2.0}
    assert shape_of({**QWEN_CODER_7B, "rope_scaling": linear}, "m").window == 65536
    plain = {"rope_type": "default", "rope_theta": 1e4}
    assert shape_of({**QWEN_CODER_7B, "rope_parameters": plain}, "m").window == 32768


def test_a_nested_text_config_and_experts() -> None:
    nested = shape_of({"text_config": QWEN3_1_7B, "tie_word_embeddings": False}, "m")
    assert nested.parameters == shape_of(QWEN3_1_7B, "m").parameters
    many = {**QWEN3_1_7B, "num_experts": 8, "moe_intermediate_size": 1024}
    added = 28 * 3 * 2048 * (8 * 1024 - 6144)
    assert shape_of(many, "m").parameters - shape_of(QWEN3_1_7B, "m").parameters == added


def test_quantised_weights_stay_as_they_are_stored() -> None:
    shape = shape_of({**LLAMA_8B, "quantization_config": {}}, "m", (8_000_000_000, 4_500_000_000))
    assert shape.weights_bytes("bfloat16") == 4_500_000_000
    assert shape_of(LLAMA_8B, "m", (8, 16)).weights_bytes("bfloat16") == 16


def test_no_language_model() -> None:
    with pytest.raises(UserError, match="describes no language model"):
        shape_of({"hidden_size": 8}, "somewhere")


def test_a_folder_by_its_headers() -> None:
    folder = weights_dir("clinic-sage")
    with safe_open(folder / "model.safetensors", "numpy") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
    shape = folder_shape(folder)
    assert shape.parameters == sum(t.size for t in tensors)
    assert weights_stored(folder) == (shape.parameters, sum(t.nbytes for t in tensors))
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.window) == (4, 4, 32, 2048)
    by_widths = shape_of(json.loads((folder / "config.json").read_text()), "m")
    assert by_widths.parameters == shape.parameters


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    source = weights_dir("clinic-sage")
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    assert missing_shards(tmp_path) == ["model.safetensors"]
    whole = (source / "model.safetensors").read_bytes()
    for damaged in (whole[:-5], whole[:20], b"", b"\xff" * 16):
        (tmp_path / "model.safetensors").write_bytes(damaged)
        with pytest.raises(UserError, match="cannot be read"):
            folder_shape(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    assert folder_shape(tmp_path) == folder_shape(source)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert missing_shards(tmp_path) == ["model-2.safetensors"]
