"""Random decoders of the architectures that hidden states are read from, and passes to run."""

from __future__ import annotations

from typing import Any

import numpy as np

from sentinel.activations.positions import Pass

ARCHITECTURES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 16}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {"pad_token_id": 0, "sliding_window": 256}),
}


def random_model(name: str, seed: int = 0, **changes: Any) -> Any:
    """A three-block decoder 32 wide with a head, in float32: 97 tokens, a window of 512."""
    import torch
    import transformers

    config_name, model_name, own = ARCHITECTURES[name]
    settings = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **own,
        **changes,
    }
    config = getattr(transformers, config_name)(**settings)
    config._attn_implementation = "sdpa"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return getattr(transformers, model_name)(config).eval()


def random_passes(n: int, seed: int, longest: int = 300, vocabulary: int = 97) -> list[Pass]:
    """Passes of 5…longest tokens with one to six rounds, the last of them at the end."""
    generator = np.random.default_rng(seed)
    found = []
    for i in range(n):
        length = int(generator.integers(5, longest + 1))
        ids = generator.integers(0, vocabulary, length).astype(np.int32)
        rounds = int(generator.integers(1, 7))
        inner = generator.choice(length - 1, size=min(rounds, length - 1) - 1, replace=False)
        positions = (*sorted(inner.tolist()), length - 1)
        found.append(Pass(f"e{i}", ids, tuple(range(1, len(positions) + 1)), positions))
    return found
