"""Every prefix of a pool scored by both heads, and five agents' pools by one.

Plain practice is batches of 32 prefixes in the order of the table, tokenised and padded for each
head anew. Against it: tokenised once for both heads, batches of like length, at least 1.8 times as
fast; and with each question's snapshot at t = 0 read once for five agents, at least 3 times. Both
sides go from texts to float64 logits and agree to 2e-5 (a bfloat16's rounding on a GPU with
flash-attention). The baseline is held to its word by its throughput: per padded token it may take
no more than twice what the fast side takes. `--device cuda` runs a random ModernBERT-base.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import made_prefixes
import numpy as np
from harness import Line, check_baseline, main, pairs_of, summary

from sentinel.heads.score import Prepared, prepare, score_heads
from sentinel.heads.tokens import Specials, tokenize

PLAIN = 32
WINDOW = 2048
AGENTS = 5


def bench(tiny: bool, device: str = "cpu") -> Iterator[Line]:
    """Yield both bars, then what is printed without one."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1 if tiny else 2)
    tokenizer, specials = opened()
    models = [random_head("tiny" if tiny else device, seed) for seed in (0, 1)]
    asked = made_prefixes.questions(2 if tiny else {"cpu": 30, "cuda": 200}[device])
    pools = [made_prefixes.prefixes(asked, 0)]
    half = asked[: (len(asked) + 1) // 2]
    fives = [made_prefixes.prefixes(half, agent) for agent in range(AGENTS)]
    pairs = 1 if tiny else 7

    one = Sides(models, pools, tokenizer, specials, device)
    yield one.line("scoring_both_heads", pairs, at_least=1.8)
    five = Sides(models[:1], fives, tokenizer, specials, device)
    yield five.line("scoring_five_agents", pairs, at_least=3.0)
    for sides, name in ((one, "one"), (five, "five")):
        prepared = sides.prepared()
        print(f"{name}_padding {100 * prepared.padding:.3g} % against {100 * sides.waste():.3g} %")
        print(f"{name}_read_once {len(prepared.distinct)} of {len(prepared)} prefixes")


class Sides:
    """Both ways of scoring the same pools with the same heads."""

    def __init__(
        self,
        models: list[Any],
        pools: list[list[str]],
        tokenizer: Any,
        specials: Specials,
        device: str,
    ) -> None:
        self.models = [model.to(device) for model in models]
        self.pools, self.device = pools, device
        self.tokenizer, self.specials = tokenizer, specials
        self.texts = [text for pool in pools for text in pool]
        self.ready = plain_tokenizer(tokenizer, specials)

    def prepared(self) -> Prepared:
        """Tokenised and put into batches, once for all heads."""
        return prepare(tokenize(self.tokenizer, self.texts), self.specials, WINDOW)

    def fast(self) -> np.ndarray:
        """(n, heads) logits."""
        return score_heads(self.models, self.prepared(), device=self.device)

    def plain(self) -> np.ndarray:
        """(n, heads) logits: head by head, pool by pool, 32 prefixes at a time."""
        import torch

        columns = []
        for model in self.models:
            found = []
            for ids, mask in (batch for pool in self.pools for batch in self.batches(pool)):
                with torch.inference_mode():
                    logits = model(ids.to(self.device), mask.to(self.device))
                found.append(logits.double().cpu().numpy())
            columns.append(np.concatenate(found))
        return np.concatenate(columns, axis=1)

    def batches(self, pool: list[str]) -> Iterator[tuple[Any, Any]]:
        """Ids and mask of 32 prefixes each, padded to the longest."""
        import torch

        for start in range(0, len(pool), PLAIN):
            rows = self.ready.encode_batch(pool[start : start + PLAIN])
            ids = torch.tensor([row.ids for row in rows])
            yield ids, torch.tensor([row.attention_mask for row in rows]).bool()

    def waste(self) -> float:
        """Share of the plain batches that is padding."""
        masks = [mask for pool in self.pools for _, mask in self.batches(pool)]
        return 1.0 - sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks)

    def line(self, name: str, pairs: int, at_least: float) -> Line:
        """Check that both sides agree, measure them, and hold the baseline to its word."""
        from sentinel.heads.model import FLASH, fastest_attention

        expected, found = self.plain(), self.fast()
        half = fastest_attention(self.models[0], self.device) == FLASH
        np.testing.assert_allclose(found, expected, atol=0.05 if half else 2e-5, rtol=0)
        assert np.ptp(found) > 0.001
        measured = pairs_of(self._waited(self.plain), self._waited(self.fast), pairs)
        if pairs > 1:
            prepared = self.prepared()
            padded = sum(m.numel() for pool in self.pools for _, m in self.batches(pool))
            own = padded / statistics.median(a for a, _ in measured)
            rate = prepared.tokens / statistics.median(b for _, b in measured)
            check_baseline("tokens of the plain side per second, over the fast", own / rate, 1.0)
        return Line(name, summary(a / b for a, b in measured), "x faster", at_least=at_least)

    def _waited(self, run: Callable[[], object]) -> Callable[[], object]:
        def waited() -> None:
            import torch

            run()
            if self.device != "cpu":
                torch.cuda.synchronize()

        return waited


def opened() -> tuple[Any, Specials]:
    """The embedded hospital's tokenizer."""
    from sentinel.heads.tokens import open_tokenizer
    from sentinel.nano import tokenizer_dir

    return open_tokenizer(tokenizer_dir("clinic"))


def plain_tokenizer(tokenizer: Any, specials: Specials) -> Any:
    """The same tokenizer as a library's user sets it up: specials, padding, left truncation."""
    from tokenizers import Tokenizer, processors

    ready = Tokenizer.from_str(tokenizer.to_str())
    ready.encode_special_tokens = True
    (before,), (after,) = specials.before, specials.after
    ready.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", before), ("[SEP]", after)]
    )
    ready.enable_truncation(WINDOW, direction="left")
    ready.enable_padding(pad_id=specials.pad, pad_token="<|pad|>")
    return ready


def random_head(size: str, seed: int, outputs: int = 1) -> Any:
    """A head with random weights: `tiny`, `cpu` (the nano encoder) or `cuda` (ModernBERT-base)."""

    from sentinel.heads.config import HeadConfig
    from sentinel.heads.fit import seeded
    from sentinel.heads.model import HeadModel, build_model

    tokenizer, specials = opened()
    config = replace(HeadConfig(), max_train_tokens=WINDOW, max_score_tokens=WINDOW)
    with seeded(seed):
        if size != "cuda":
            narrow = replace(config, width=32, layers=1) if size == "tiny" else config
            return build_model(narrow, tokenizer.get_vocab_size(), specials, outputs).eval()
        from transformers import AutoModel, ModernBertConfig

        shape = ModernBertConfig()
        encoder = AutoModel.from_config(shape, attn_implementation="sdpa")
        return HeadModel(encoder, shape.hidden_size, "mean", outputs, 0.0).eval()


if __name__ == "__main__":
    sys.exit(main(__doc__, bench, devices=("cpu", "cuda")))
