"""What a model's files say of its size: parameters, key-value memory, window. Torch-free."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.errors import UserError

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder-only language model.

    `stored_bytes` is the size of its weights on disk; it counts where they stay quantised in
    memory. `kv_values` are the numbers that one token leaves in the key-value cache.
    """

    parameters: int
    stored_bytes: int | None
    quantized: bool
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int

    @property
    def kv_values(self) -> int:
        """Keys and values of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def weights_bytes(self, dtype: str) -> int:
        """Bytes of the weights in memory when computed in `dtype`."""
        if self.quantized and self.stored_bytes is not None:
            return self.stored_bytes
        return self.parameters * BYTES[dtype]

    def kv_bytes(self, dtype: str) -> int:
        """Bytes of one token in the key-value cache."""
        return self.kv_values * BYTES[dtype]


def shape_of(
    config: Mapping[str, Any], where: str, stored: tuple[int, int | None] | None = None
) -> Shape:
    """The shape that a `config.json` describes.

    `stored` is (parameters, bytes) of the weight files; without them the parameters follow from the
    widths. Raises UserError where the config describes no language model.
    """
    text = config.get("text_config") or config
    try:
        layers = int(_first(text, "num_hidden_layers", "n_layer"))
        hidden = int(_first(text, "hidden_size", "n_embd"))
        heads = int(_first(text, "num_attention_heads", "n_head"))
        window = int(_first(text, "max_position_embeddings", "n_positions"))
        vocabulary = int(text["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"the config.json of {where} describes no language model ({error})",
            "name a causal language model",
        ) from None
    kv_heads = int(text.get("num_key_value_heads") or heads)
    head_dim = int(text.get("head_dim") or hidden // heads)
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    inner = int(text.get("intermediate_size") or text.get("n_inner") or 4 * hidden)
    experts = int(text.get("num_local_experts") or text.get("num_experts") or 0)
    if experts:
        inner = experts * int(text.get("moe_intermediate_size") or inner)
    per_layer = 2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * inner + 2 * hidden
    estimate = layers * per_layer + vocabulary * hidden * (1 if tied else 2) + hidden
    return Shape(
        parameters=estimate if stored is None else stored[0],
        stored_bytes=None if stored is None else stored[1],
        quantized="quantization_config" in config,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        window=_scaled(window, text),
    )


def folder_shape(folder: Path) -> Shape:
    """The shape of a model folder. Raises UserError for files that cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        stored = weights_stored(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be read: {error}", "copy the model again") from error
    return shape_of(config, str(folder), stored)


def weights_stored(folder: Path) -> tuple[int, int] | None:
    """(parameters, bytes) of a folder's safetensors, read from their headers; None without any.

    Raises ValueError for a file that is cut short or no safetensors file.
    """
    parameters = size = 0
    found = sorted(folder.glob("*.safetensors"))
    for file in found:
        with file.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if not 0 < length <= min(100_000_000, file.stat().st_size):
                raise ValueError(f"{file.name} is cut short or no safetensors file")
            header = json.loads(handle.read(length))
        tensors = [v for k, v in header.items() if k != "__metadata__"]
        parameters += sum(math.prod(t["shape"]) for t in tensors)
        end = max((t["data_offsets"][1] for t in tensors), default=0)
        if file.stat().st_size < 8 + length + end:
            raise ValueError(f"{file.name} is cut short")
        size += end
    return (parameters, size) if found else None


def missing_shards(folder: Path) -> list[str]:
    """Weight files that the folder's index names and that are not there."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [] if any(folder.glob("*.safetensors")) else ["model.safetensors"]
    named = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
    return sorted(n for n in named if not (folder / n).is_file())


def _first(config: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise KeyError(names[0])


def _scaled(window: int, text: Mapping[str, Any]) -> int:
    """The window with position scaling; Llama 3 and LongRoPE configs state the scaled one."""
    rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    factor = rope.get("factor")
    if kind in ("default", "llama3", "longrope", "su", "mrope") or not factor:
        return window
    if kind == "yarn":
        window = int(rope.get("original_max_position_embeddings") or window)
    return int(window * float(factor))
