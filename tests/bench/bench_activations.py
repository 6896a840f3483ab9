"""Hidden states of 20-turn episodes at action-final tokens, one pass per episode.

Against `output_hidden_states` with one forward pass per turn, at least 5 times as fast; and at
least 0.9 of the throughput of a bare forward pass over the same tokens. Both sides run one random
decoder, and both give the same vectors. The baseline is held to its word by its own throughput: a
pass of it may cost no more per token than twice what a bare pass of the same sequence costs.
`--device cuda` runs a larger one in bfloat16.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Line, Measured, check_baseline, main, pairs_of, summary

from sentinel.activations.positions import Pass, passes
from sentinel.episodes import Turn

TURNS = 20
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "heads": 2},
    "cpu": {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "heads": 4},
    "cuda": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "heads": 16},
}


def bench(tiny: bool, device: str = "cpu") -> Iterator[Line]:
    """Yield the two bars, then what is printed without one."""
    import torch

    from sentinel.activations.extract import backbone, extract

    if device == "cpu":
        torch.set_num_threads(1 if tiny else 2)
    model = random_model("tiny" if tiny else device, device)
    layer = model.config.num_hidden_layers  # the last one: nothing can be left out
    found = backbone(model)
    episodes = made_episodes(2, 8 if tiny else 30, 4 if tiny else 30)
    whole = [p for turns in episodes for p in passes(turns[0].episode_id, turns)]
    assert [len(p.positions) for p in whole] == [TURNS] * len(episodes)

    def fast() -> np.ndarray:
        return np.asarray(extract(found, whole, [layer]).vectors[:, 0])

    def per_turn() -> np.ndarray:
        return np.stack([last_token(model, p, at, layer) for p in whole for at in p.positions])

    # The vectors of both sides agree, first of all.
    expected = per_turn()
    worst = np.abs(fast().astype(np.float32) - expected).max() / np.abs(expected).max()
    assert worst < (1e-3 if device == "cpu" else 0.05), worst
    tokens = sum(map(len, whole))
    per_turn_tokens = sum(at + 1 for p in whole for at in p.positions)
    print(f"episode_tokens {tokens / len(whole):.4g} tokens")
    print(f"per_turn_tokens {per_turn_tokens / tokens:.4g} x of one pass")

    slow, quick, plain, middle = map(
        _synchronised(device),
        (
            per_turn,
            fast,
            lambda: bare(found, whole),
            lambda: extract(found, whole, [max(1, layer // 2)]),
        ),
    )
    plain()
    per_pass = pairs_of(plain, quick, 1 if tiny else 15)
    per_call = pairs_of(slow, quick, 1 if tiny else 7)
    if not tiny:
        rate = tokens / statistics.median(a for a, _ in per_pass)
        own = per_turn_tokens / statistics.median(a for a, _ in per_call)
        check_baseline("per-turn throughput over bare", own / rate, 1.0)
    yield Line("activations_per_turn", _ratios(per_call), "x faster", at_least=5)
    yield Line("activations_bare", _ratios(per_pass), "x bare", at_least=0.9)
    half = pairs_of(plain, middle, 1 if tiny else 7)
    yield Line("activations_middle_layer", _ratios(half), "x bare")


def _ratios(pairs: list[tuple[float, float]]) -> Measured:
    return summary(a / b for a, b in pairs)


def last_token(model: Any, one: Pass, at: int, layer: int) -> np.ndarray:
    """What the library gives for one turn: all states of the prompt and generation up to `at`."""
    import torch

    ids = torch.from_numpy(one.ids[None, : at + 1].astype(np.int64)).to(model.device)
    with torch.inference_mode():
        states = model(ids, output_hidden_states=True).hidden_states
    return np.asarray(states[layer][0, -1].float().cpu().numpy())


def bare(found: Any, whole: list[Pass]) -> None:
    """The same batches through the decoder, and nothing gathered."""
    import torch

    from sentinel.activations.packing import pack

    with torch.inference_mode():
        for batch in pack([len(p) for p in whole], 16_384):
            ids = np.zeros((len(batch), max(len(whole[i]) for i in batch)), dtype=np.int64)
            for row, i in enumerate(batch):
                ids[row, : len(whole[i])] = whole[i].ids
            found.model(input_ids=torch.from_numpy(ids).to(found.model.device), use_cache=False)


def random_model(size: str, device: str) -> Any:
    """A random Llama whose `output_hidden_states` end before the final norm."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(SIZES[size])
    heads = sizes.pop("heads")
    config = LlamaConfig(
        vocab_size=512,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=4096,
        **sizes,
    )
    config.tie_last_hidden_states = False
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(device).eval()
    return model.to(torch.bfloat16) if device != "cpu" else model


def made_episodes(n: int, prompt: int, generated: int) -> list[list[Turn]]:
    """Episodes of 20 turns, each adding some 2 × `prompt` and `generated` tokens."""
    rng = np.random.default_rng(0)
    return [
        [
            Turn(
                "bench",
                "random",
                f"bench/random/t{i}/0",
                number,
                prompt_ids=rng.integers(0, 512, int(rng.integers(prompt, 3 * prompt))).tolist(),
                prompt_is_full=number == 1,
                generated_ids=rng.integers(0, 512, generated).tolist(),
            )
            for number in range(1, TURNS + 1)
        ]
        for i in range(n)
    ]


def _synchronised(device: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Work on a GPU is awaited before the clock is read."""
    import torch

    def wrap(run: Callable[[], object]) -> Callable[[], object]:
        def waited() -> None:
            run()
            if device != "cpu":
                torch.cuda.synchronize()

        return waited

    return wrap


if __name__ == "__main__":
    sys.exit(main(__doc__, bench, devices=("cpu", "cuda")))
