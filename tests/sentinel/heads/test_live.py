"""The live monitor's logits are the batch scorer's, turn by turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.fit import seeded
from sentinel.heads.live import LiveHeads, LiveTfidf, open_heads
from sentinel.heads.model import HeadModel, build_model, head_tokenizer, save_head
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


def test_saved_heads_are_opened_together(tmp_path: Path) -> None:
    pair = {"answerability": made(1), "correctness": made(2)}
    for name, model in pair.items():
        save_head(tmp_path / name, model, CONFIG, {})
    live = open_heads([tmp_path / name for name in pair])
    expected = LiveHeads(list(pair.values()), TOKENIZER, SPECIALS, 120).score(PREFIXES[1])
    np.testing.assert_array_equal(live.score(PREFIXES[1]), expected)
    save_head(
        tmp_path / "other", made(3, max_score_tokens=99), replace(CONFIG, max_score_tokens=99), {}
    )
    with pytest.raises(UserError, match="alike"):
        open_heads([tmp_path / "answerability", tmp_path / "other"])


def test_tfidf_heads_answer_the_same_way(tmp_path: Path) -> None:
    head = fit_tfidf(PREFIXES, np.array([0, 1, 0, 1]), CONFIG, 0)
    for name in ("a", "b"):
        head.save(tmp_path / name, {})
    live = open_heads([tmp_path / "a", tmp_path / "b"])
    assert isinstance(live, LiveTfidf)
    found = np.stack([live.episode().score(text) for text in PREFIXES])
    np.testing.assert_allclose(found, np.stack([head.logits(PREFIXES)] * 2, axis=1), atol=1e-12)
    save_head(tmp_path / "c", made(1), CONFIG, {})
    with pytest.raises(UserError, match="alike"):
        open_heads([tmp_path / "a", tmp_path / "c"])


def test_a_head_gone_wrong_gives_no_nan_to_a_gate() -> None:
    broken = made(1)
    with torch.no_grad():
        broken.norm.weight.fill_(float("inf"))
    with pytest.raises(HeadFailure, match="not finite"):
        LiveHeads([made(2), broken], TOKENIZER, SPECIALS, 120).score(PREFIXES[0])
