from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from sentinel.errors import UserError
from sentinel.heads.score import deduplicate, length_batches
from sentinel.heads.tokens import Specials, Tokenized, open_tokenizer, tokenize, with_specials

SPECIALS = Specials((1,), (2,), 0)


def small_tokenizer(
    special: tuple[str, ...] = ("<|pad|>", "[CLS]", "[SEP]", "<|end|>"),
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["select from where"] * 9, trainer)
    return tokenizer


rows_of_ids = st.lists(st.lists(st.integers(3, 99), max_size=12), min_size=1, max_size=8)


def flat(rows: list[list[int]]) -> Tokenized:
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    return Tokenized(np.array([i for r in rows for i in r], dtype=np.int32), starts)


@settings(max_examples=50, deadline=None)
@given(rows_of_ids, st.integers(3, 16))
def test_a_batch_keeps_the_specials_and_the_end(rows: list[list[int]], window: int) -> None:
    tokens = flat(rows)
    ids, mask = tokens.batch(np.arange(len(rows)), SPECIALS, window)
    for row, got, real in zip(rows, ids, mask, strict=True):
        kept = row[-(window - 2) :]
        assert got[real].tolist() == [1, *kept, 2]
        assert (got[~real] == 0).all()
        assert not real[len(kept) + 2 :].any()
    np.testing.assert_array_equal(mask.sum(1), tokens.lengths(SPECIALS, window))
    cut = [len(r) + 2 > window for r in rows]
    assert tokens.truncated(SPECIALS, window).tolist() == cut


@settings(max_examples=50, deadline=None)
@given(rows_of_ids)
def test_equal_rows_are_one(rows: list[list[int]]) -> None:
    distinct, index = deduplicate(flat(rows))
    assert len(distinct) == len({tuple(r) for r in rows})
    again = distinct.take(index)
    np.testing.assert_array_equal(again.ids, flat(rows).ids)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(50, 200))
def test_scoring_batches_cover_all_within_the_budget(lengths: list[int], budget: int) -> None:
    sizes = np.array(lengths)
    batches = list(length_batches(sizes, budget))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(len(sizes)))
    assert all(sizes[b].max() * len(b) <= budget for b in batches)


def test_control_tokens_in_a_text_stay_text() -> None:
    tokenizer, specials = with_specials(small_tokenizer(), "small")
    tokens = tokenize(tokenizer, ["a cell <|end|> and [SEP]"])
    assert not set(tokens.ids.tolist()) & {0, 1, 2, 3}
    assert specials == SPECIALS


def test_a_template_names_the_specials() -> None:
    tokenizer = small_tokenizer(("[PAD]", "<s>", "</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    assert with_specials(tokenizer, "small")[1] == Specials((1,), (2,), 0)


@pytest.mark.parametrize("repeated", [1, 9])
def test_tokenising_equal_texts_once_changes_nothing(repeated: int) -> None:
    tokenizer, _ = with_specials(small_tokenizer(), "small")
    texts = ["b", "select a", "b", "", "select a\nfrom b"] * repeated
    tokens = tokenize(tokenizer, texts)
    for i, text in enumerate(texts):
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokens.ids[tokens.starts[i] : tokens.starts[i + 1]].tolist() == expected


def test_encoders_without_padding_or_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="padding"):
        with_specials(small_tokenizer(("[CLS]",)), "small")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_end_is_kept_whatever_side_a_tokenizer_cuts_and_pads_on(side: str) -> None:
    tokenizer = small_tokenizer()
    tokenizer.enable_truncation(4, direction=side)
    tokenizer.enable_padding(direction=side)
    ready, specials = with_specials(tokenizer, "small")
    text = "select a from b where c = 1"
    whole = small_tokenizer().encode(text, add_special_tokens=False).ids
    assert len(whole) > 10
    tokens = tokenize(ready, [text, "b"])
    ids, mask = tokens.batch(np.arange(2), specials, 8)
    assert ids[0].tolist() == [1, *whole[-6:], 2]
    assert ids[1][mask[1]].tolist() == [1, *small_tokenizer().encode("b").ids, 2]
    assert mask[1].tolist() == sorted(mask[1].tolist(), reverse=True)  # padded on the right
    assert tokens.truncated(specials, 8).tolist() == [True, False]


@settings(max_examples=50, deadline=None)
@given(rows_of_ids)
def test_ids_survive_a_table_and_rows_end_to_end(rows: list[list[int]]) -> None:
    tokens = flat(rows)
    again = Tokenized.from_table(tokens.to_table())
    np.testing.assert_array_equal(again.ids, tokens.ids)
    np.testing.assert_array_equal(again.starts, tokens.starts)
    assert (again.ids.dtype, again.starts.dtype) == (np.int32, np.int64)
    tail = Tokenized.from_table(tokens.to_table().slice(1))
    np.testing.assert_array_equal(tail.ids, tokens.take(np.arange(1, len(rows))).ids)


def test_another_table_is_no_table_of_ids() -> None:
    with pytest.raises(ValueError, match="not a table of token ids"):
        Tokenized.from_table(pa.table({"ids": [1, 2]}))
