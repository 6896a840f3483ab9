"""The tokenizer of an embedded world: byte-level BPE, 1,024 entries, digits one by one.

Identifiers such as `subject_id` stay whole words (an underscore joins), digits never merge, so that
a small model copies numbers token by token; every byte has an entry, so no text is ever unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

VOCABULARY = 1024
PAD, USER, AGENT, END, CLS, SEP = "<|pad|>", "<|user|>", "<|agent|>", "<|end|>", "[CLS]", "[SEP]"
SPECIALS = (PAD, USER, AGENT, END, CLS, SEP)
WORDS = r" ?[\p{L}_]+|\p{N}| ?[^\s\p{L}\p{N}_]+|\s+"
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] == 'assistant' %}<|agent|>{{ m['content'] }}<|end|>"
    "{% else %}<|user|>{{ m['content'] }}<|end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|agent|>{% endif %}"
)
WINDOW = 2048
"""Positions a nano model was built for, in tokens."""


def train_tokenizer(texts: Iterable[str], folder: Path, vocabulary: int = VOCABULARY) -> None:
    """Fit the BPE on texts and write a folder that `transformers` and vLLM load as it is.

    The result depends on the texts alone (counts, then alphabetical ties), not on threads.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": WINDOW,
        "pad_token": PAD,
        "eos_token": END,
        "cls_token": CLS,
        "sep_token": SEP,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        "takes_instructions": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
