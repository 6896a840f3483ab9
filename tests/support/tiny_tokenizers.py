"""Tokenizer folders for tests: a byte-level BPE with whatever chat template a test needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""Opens a thought in the generation prompt that history does not show: no prefix property."""
SPECIALS = ["<pad>", "<bos>", "<|im_start|>", "<|im_end|>"]


def write_tokenizer(folder: Path, template: str | None = CHATML, **config: Any) -> Path:
    """A tokenizer folder: 4 control tokens, 256 bytes and some merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = ["select count(*) from patients where x = 1", "QUESTION: how many? RESULT: 1 rows"]
    tokenizer.train_from_iterator(texts * 9, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<bos>", "eos_token": "<|im_end|>", "pad_token": "<pad>", **config}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_llama(folder: Path, *, seed: int = 0, half: bool = False, window: int = 256) -> Path:
    """A random two-layer Llama over that tokenizer's vocabulary, sharp enough to have no ties."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=321,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.4,
        bos_token_id=1,
        eos_token_id=3,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    (model.half() if half else model).save_pretrained(folder)
    return folder


# Templates of our own in the style of well-known models: the quirks, not the texts.

QWEN25 = (
    "{% if messages[0]['role'] == 'system' %}"
    "<|im_start|>system\n{{ messages[0]['content'] }}<|im_end|>\n"
    "{% else %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if not (loop.first and m.role == 'system') %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A default system prompt."""
QWEN3 = (
    "{%- set ns = namespace(last=0) %}{% for m in messages %}"
    "{%- if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for m in messages %}{% set content = m.content %}"
    "{%- if m.role == 'assistant' and loop.index0 < ns.last and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""Thinking left out of history; an empty thought in the generation prompt where it is off."""
LLAMA31 = (
    "{{- bos_token }}"
    "{%- if not date_string is defined %}"
    "{%- if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
    "{%- else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}"
    "{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}"
    "{%- set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{{- '<|im_start|>system\nToday: ' + date_string + '\n\n' + system + '<|im_end|>' }}"
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m['role'] + '\n\n' + m['content'] | trim + '<|im_end|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n\n' }}{% endif %}"
)
"""Today's date in the system message, unless it is given."""
PHI4_MINI = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{% else %}{{ eos_token }}{% endif %}"
)
"""No line breaks, no BOS, an end-of-text after a conversation without a generation prompt."""
PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for part in m.content %}{{ part.text }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Contents as lists of parts."""
ALTERNATING = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Roles must alternate, beginning with the user: no system role either."""
