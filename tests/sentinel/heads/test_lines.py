"""Ids by line are ids of the whole text, for every tokenizer that says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

from sentinel.heads.lines import LineTokens, cut_by_line, lines
from sentinel.heads.tokens import open_tokenizer
from sentinel.nano import tokenizer_dir

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE = {
    "gpt2": pre.ByteLevel(add_prefix_space=False),
    "llama": pre.Sequence(
        [
            pre.Split(Regex(LLAMA), "isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "bert": pre.BertPreTokenizer(),
    "prefix space": pre.ByteLevel(add_prefix_space=True),
    "metaspace": pre.Metaspace(),
}
ADDED = AddedToken("x\n", special=False)


def trained(name: str) -> Tokenizer:
    """A BPE whose merges reach across spaces and line breaks where the pre-tokeniser lets them."""
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = PRE[name]
    if name == "bert":
        tokenizer.normalizer = normalizers.BertNormalizer()
    text = "STEP 1 SQL: select (a).\nSTEP 2 RESULT: b;\n ).\n x\ny ;\n" * 9
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


CUT = {name: trained(name) for name in ("gpt2", "llama", "bert")}
texts = st.lists(
    st.text(st.sampled_from("ab 1\n\n\t().;'é中\u0301\u00a0\x1c\r🙂_"), max_size=30), max_size=6
).map("\n".join)


@pytest.mark.parametrize("name", CUT)
@settings(max_examples=150)
@given(texts)
def test_ids_by_line_are_those_of_the_whole_text(name: str, text: str) -> None:
    tokenizer = CUT[name]
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    assert LineTokens(tokenizer, True).ids(text).tolist() == whole


@settings(max_examples=150)
@given(texts)
def test_the_embedded_tokenizer_reads_by_line(text: str) -> None:
    tokenizer, _ = open_tokenizer(tokenizer_dir("clinic"))
    reader = LineTokens(tokenizer)
    assert reader.by_line
    assert "".join(lines(text)) == text
    assert reader.ids(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids


def test_tokenizers_whose_tokens_cross_lines_are_found_out() -> None:
    assert all(map(cut_by_line, CUT.values()))
    assert not cut_by_line(trained("prefix space"))
    assert not cut_by_line(trained("metaspace"))
    bare = trained("gpt2")
    bare.pre_tokenizer = pre.Split("never", "isolated")
    assert not cut_by_line(bare)
    stripping = trained("gpt2")
    stripping.normalizer = normalizers.Strip()
    assert not cut_by_line(stripping)
    for added in (ADDED, AddedToken("<x>", special=False, lstrip=True)):
        greedy = trained("gpt2")
        greedy.add_tokens([added])
        assert not cut_by_line(greedy)


def test_such_a_tokenizer_reads_texts_whole() -> None:
    tokenizer = trained("metaspace")
    text = "STEP 1 SQL: a\nSTEP 2 RESULT: b"
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    assert LineTokens(tokenizer).ids(text).tolist() == whole
    assert LineTokens(tokenizer, True).ids(text).tolist() != whole  # it had to be found out


def test_a_line_is_read_once() -> None:
    class Counted:
        """The real tokenizer, with what it was asked for."""

        def __init__(self) -> None:
            self.asked: list[str] = []

        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list:
            self.asked += texts
            return CUT["gpt2"].encode_batch_fast(texts, add_special_tokens=add_special_tokens)

    counted = Counted()
    reader = LineTokens(counted, True)  # type: ignore[arg-type]
    prefixes = ["QUESTION: a", "QUESTION: a\nSTEP 1 SQL: b", "QUESTION: a\nSTEP 1 SQL: b\nend"]
    for text in prefixes:
        reader.ids(text)
    found = reader.read(prefixes)
    assert sorted(counted.asked) == sorted(
        ["QUESTION: a", "QUESTION: a\n", "STEP 1 SQL: b", "STEP 1 SQL: b\n", "end"]
    )
    np.testing.assert_array_equal(found[0], reader.ids("QUESTION: a"))
