"""The live monitor's logits are the batch scorer's, turn by turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.fit import seeded
from sentinel.heads.live import LiveHeads, LiveTfidf
from sentinel.heads.model import HeadModel, build_model, head_tokenizer
from sentinel.heads.score import prepare, score_heads
from sentinel.heads.tfidf import fit_tfidf
from sentinel.heads.tokens import tokenize

CONFIG = HeadConfig(width=32, layers=1, max_train_tokens=120, max_score_tokens=120)
TOKENIZER, SPECIALS = head_tokenizer(CONFIG)
LINES = [
    "QUESTION: how many patients had a lab test?",
    "STEP 1 THOUGHT: look at the patients first",
    "STEP 1 SQL: select count(*) from patients where age > 60",
    "STEP 1 RESULT: 1 rows x 1 cols; sample [(12,)]",
    "STEP 2 THOUGHT: that is it, and now a thought that does not end " + "so soon " * 40,
    "FINAL_SQL: select count(*) from patients",
    "RESULT: 1 rows x 1 cols; sample [(17,)]",
]
PREFIXES = ["\n".join(LINES[:n]) for n in (1, 4, 5, 7)]


def made(seed: int, outputs: int = 1, **changes: object) -> HeadModel:
    with seeded(seed):
        return build_model(
            replace(CONFIG, **changes), TOKENIZER.get_vocab_size(), SPECIALS, outputs
        ).eval()


@pytest.mark.parametrize("shared", [False, True])
def test_turn_by_turn_as_in_a_batch(shared: bool) -> None:
    models = [made(0, outputs=2)] if shared else [made(1), made(2)]
    prepared = prepare(tokenize(TOKENIZER, PREFIXES), SPECIALS, 120)
    expected = score_heads(models, prepared)
    assert (prepared.distinct.truncated(SPECIALS, 120)).any()
    live = LiveHeads(models, TOKENIZER, SPECIALS, 120)
    episode = live.episode()
    found = np.stack([episode.score(text) for text in PREFIXES])
    assert (found.dtype, found.shape) == (np.float64, (4, 2))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_array_equal(live.score(PREFIXES[2]), found[2])
    assert np.ptp(found[:, 0]) > 0.005


def test_tfidf_heads_answer_the_same_way() -> None:
    heads = [fit_tfidf(PREFIXES, np.array(y), CONFIG, 0) for y in ([0, 1, 0, 1], [0, 0, 1, 1])]
    live = LiveTfidf(heads)
    found = np.stack([live.episode().score(text) for text in PREFIXES])
    expected = np.stack([head.logits(PREFIXES) for head in heads], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_head_gone_wrong_gives_no_nan_to_a_gate() -> None:
    broken = made(1)
    with torch.no_grad():
        broken.norm.weight.fill_(float("inf"))
    with pytest.raises(HeadFailure, match="not finite"):
        LiveHeads([made(2), broken], TOKENIZER, SPECIALS, 120).score(PREFIXES[0])
