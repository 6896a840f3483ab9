"""One turn of a live monitor with both text heads, against the same turn with one head.

Two encoders (the paper's) may take 2.05 times as long as one, the shared encoder with its two
logits 1.15 times: the text is tokenised once and what a turn adds, not what it repeats. Plain
practice, two tokenisations and two padded calls, is printed beside. Every turn of an episode is
timed from its text to float64 logits. `--device cuda` runs a random ModernBERT-base.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import made_prefixes
import numpy as np
from bench_scoring import WINDOW, opened, plain_tokenizer, random_head
from harness import Line, Measured, check_baseline, main, seconds, summary

from sentinel.heads.live import LiveHeads


def bench(tiny: bool, device: str = "cpu") -> Iterator[Line]:
    """Yield both bars, then plain practice."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1 if tiny else 2)
    tokenizer, specials = opened()
    size = "tiny" if tiny else device
    models = [random_head(size, seed).to(device) for seed in (0, 1)]
    shared = random_head(size, 2, outputs=2)
    ready = plain_tokenizer(tokenizer, specials)
    texts = made_prefixes.prefixes(made_prefixes.questions(1 if tiny else 8), 0)
    pairs = 1 if tiny else 9

    def live(heads: list[Any]) -> Callable[[], np.ndarray]:
        monitor = LiveHeads(heads, tokenizer, specials, WINDOW, device=device)

        def turns() -> np.ndarray:
            episode, found = monitor.episode(), []
            for text in texts:
                if "\n" not in text:  # the question alone: the next episode begins
                    episode = monitor.episode()
                found.append(episode.score(text))
            return np.stack(found)

        return turns

    def plain() -> np.ndarray:
        found = []
        for text in texts:
            logits = []
            for model in models:
                row = ready.encode_batch([text])[0]
                ids, mask = torch.tensor([row.ids]), torch.tensor([row.attention_mask]).bool()
                with torch.inference_mode():
                    logits.append(float(model(ids.to(device), mask.to(device))))
            found.append(logits)
        return np.array(found)

    one, two, single = live(models[:1]), live(models), live([shared])
    np.testing.assert_allclose(two(), plain(), atol=2e-5 if device == "cpu" else 0.05)
    assert single().shape == (len(texts), 2)
    times = rounds([one, two, single, plain], pairs)
    if not tiny:
        check_baseline("plain practice over one head", ratio(times[3], times[0]).median, 2.0)
    yield Line("two_encoders_over_one", ratio(times[1], times[0]), "x", at_most=2.05)
    yield Line("shared_encoder_over_one", ratio(times[2], times[0]), "x", at_most=1.15)
    yield Line("plain_over_two_encoders", ratio(times[3], times[1]), "x slower")
    per_turn = [1e3 * t / len(texts) for t in times[0]]
    yield Line("one_head_per_turn", summary(per_turn), "ms")


def rounds(sides: list[Callable[[], object]], pairs: int) -> list[list[float]]:
    """Seconds of every side, in an order that turns around each time."""
    times: list[list[float]] = [[] for _ in sides]
    for number in range(pairs):
        order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
        for at in order:
            times[at].append(seconds(sides[at]))
    return times


def ratio(above: list[float], below: list[float]) -> Measured:
    """Median and range of the pairs' ratios."""
    return summary(a / b for a, b in zip(above, below, strict=True))


if __name__ == "__main__":
    sys.exit(main(__doc__, bench, devices=("cpu", "cuda")))
