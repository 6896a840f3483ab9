"""Tiny random encoders of four families, each with a real fast tokenizer of its own habits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TEXTS = [
    "QUESTION: how many visits of patient 12? STEP 1 THOUGHT: look STEP 1 SQL: SELECT count(*)",
    "FROM visits LIMIT 1 RESULT: 1 rows [[40]] FINAL_SQL: SELECT n FROM patients WHERE age = 3",
    "what is the phone number of patient 7? FINAL: null (abstained) alder birch cedar elm fir",
]
FAMILIES = ("modernbert", "distilbert", "minilm", "roberta")
WINDOWS = {"modernbert": 256, "distilbert": 128, "minilm": 96, "roberta": 112}
"""Tokens that each can read; the RoBERTa has two positions more, which no token ever takes."""


def write_encoder(folder: Path, family: str, *, pad: bool = True, seed: int = 0) -> Path:
    """Config, weights and tokenizer of a one-layer encoder 32 wide, as a hub folder has them."""
    import torch
    from transformers import AutoModel

    folder.mkdir(parents=True, exist_ok=True)
    make = _byte_level if family in ("modernbert", "roberta") else _word_piece
    tokenizer = make(family, pad)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if pad:
        settings["pad_token"] = {"modernbert": "[PAD]", "roberta": "<pad>"}.get(family, "[PAD]")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        AutoModel.from_config(_config(family, tokenizer.get_vocab_size())).save_pretrained(folder)
    return folder


def _config(family: str, vocabulary: int) -> Any:
    import transformers as t

    wide = {"vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 1}
    bert = {**wide, "num_attention_heads": 2, "intermediate_size": 64, "initializer_range": 0.2}
    if family == "modernbert":
        return t.ModernBertConfig(
            **bert, max_position_embeddings=256, pad_token_id=2, cls_token_id=0, sep_token_id=1
        )
    if family == "distilbert":
        return t.DistilBertConfig(
            vocab_size=vocabulary, dim=32, n_layers=1, n_heads=2, hidden_dim=64,
            initializer_range=0.2, max_position_embeddings=128,
        )  # fmt: skip
    if family == "minilm":
        return t.BertConfig(**bert, max_position_embeddings=96)
    return t.RobertaConfig(**bert, max_position_embeddings=114, pad_token_id=1)


def _byte_level(family: str, pad: bool) -> Any:
    """GPT-2's kind of tokens; ModernBERT's specials without truncation, RoBERTa's cut on the
    right."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    specials = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"]
    if family == "roberta":
        specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if not pad:
        specials = [s for s in specials if "pad" not in s.lower()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    start, end = ("<s>", "</s>") if family == "roberta" else ("[CLS]", "[SEP]")
    ends = [(token, tokenizer.token_to_id(token)) for token in (start, end)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=ends
    )
    if family == "roberta":
        tokenizer.enable_truncation(32, direction="right")
    return tokenizer


def _word_piece(family: str, pad: bool) -> Any:
    """BERT's lower-cased pieces; the MiniLM's file pads to a fixed length and cuts on the left, as
    a file saved after use does."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"][0 if pad else 1 :]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=specials, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    if family == "minilm":
        tokenizer.enable_truncation(24, direction="left")
        if pad:
            tokenizer.enable_padding(length=24, pad_id=0, pad_token="[PAD]")
    return tokenizer
