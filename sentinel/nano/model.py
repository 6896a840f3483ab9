"""The nano agent: a Llama of at most one million parameters (a torch room)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from sentinel.nano.tokenizer import WINDOW

MAX_PARAMETERS = 1_000_000
MAX_BYTES = 2_000_000


def nano_config(vocabulary: int, pad: int, end: int) -> LlamaConfig:
    """Width 128, three layers, four heads of 32: what two cores train in minutes."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        pad_token_id=pad,
        eos_token_id=end,
    )


def new_model(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """A freshly initialised model; the caller's random state is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    parameters = sum(p.numel() for p in model.parameters())
    if parameters > MAX_PARAMETERS:
        raise ValueError(f"{parameters} parameters, more than {MAX_PARAMETERS}")
    return model


def load(folder: Path) -> LlamaForCausalLM:
    """The model of a weights folder, in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


def save(model: LlamaForCausalLM, folder: Path, recipe: dict[str, Any]) -> None:
    """Write `config.json`, `model.safetensors` (float16) and `RECIPE.json`, the weights last."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(model.config.to_json_string())
    config.update(architectures=["LlamaForCausalLM"], dtype="float16", torch_dtype="float16")
    config.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "RECIPE.json").write_text(json.dumps(recipe, indent=2) + "\n")
    tensors = {
        name: tensor.detach().to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the embedding
    }
    temporary = folder / "model.safetensors.tmp"
    save_file(tensors, temporary, metadata={"format": "pt"})
    if temporary.stat().st_size > MAX_BYTES:
        raise ValueError(f"{temporary.stat().st_size} bytes of weights, more than {MAX_BYTES}")
    temporary.chmod(0o644)
    temporary.replace(folder / "model.safetensors")
