from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig
from sentinel.heads.tfidf import TfidfHead, fit_tfidf

TEXTS = [f"QUESTION: item {i} is {'red' if i % 3 else 'blue <|end|>'}" for i in range(60)]
TARGETS = np.array([float(i % 3 > 0) for i in range(60)])


@pytest.fixture(scope="module")
def head() -> TfidfHead:
    return fit_tfidf(TEXTS, TARGETS, HeadConfig(kind="tfidf"), 0)


def test_it_learns_a_word(head: TfidfHead) -> None:
    new = head.logits(["QUESTION: item 77 is red", "QUESTION: item 77 is blue <|end|>"])
    assert new[0] > 0 > new[1]
    assert new.dtype == np.float64


def test_saved_heads_score_alike(head: TfidfHead, tmp_path: Path) -> None:
    head.save(tmp_path / "h", {"fold": 1})
    again, meta = TfidfHead.load(tmp_path / "h")
    assert meta == {"fold": 1}
    np.testing.assert_array_equal(again.logits(TEXTS), head.logits(TEXTS))
    assert sorted(p.name for p in (tmp_path / "h").iterdir()) == ["head.json", "model.safetensors"]


def test_equal_texts_get_equal_logits_and_none_give_none(head: TfidfHead) -> None:
    twice = head.logits([TEXTS[0], TEXTS[1], TEXTS[0]])
    assert twice[0] == twice[2] != twice[1]
    assert head.logits([]).shape == (0,)


@pytest.mark.parametrize("file", ["head.json", "model.safetensors"])
def test_damaged_files_are_named(head: TfidfHead, tmp_path: Path, file: str) -> None:
    head.save(tmp_path, {})
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:20])
    with pytest.raises(UserError, match="cannot be read"):
        TfidfHead.load(tmp_path)
