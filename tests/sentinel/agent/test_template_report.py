"""Quirks of chat templates, found on small stand-ins in the style of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import (
    ALTERNATING,
    CHATML,
    FORGETFUL,
    LLAMA31,
    NO_SYSTEM,
    PARTS,
    PHI4_MINI,
    QWEN3,
    QWEN25,
    write_tokenizer,
)

from sentinel.agent.chat import ChatEncoder
from sentinel.agent.template_report import TemplateReport, inspect_template
from sentinel.engine import Message
from sentinel.errors import UserError

END = 3
"""<|im_end|> of the stand-ins."""


def made(folder: Path, template: str, **kwargs: Any) -> ChatEncoder:
    return ChatEncoder.from_folder(write_tokenizer(folder, template), template_kwargs=kwargs)


def report(folder: Path, template: str, **kwargs: Any) -> TemplateReport:
    return inspect_template(made(folder, template, **kwargs), [END])


@pytest.mark.parametrize(
    ("template", "kwargs", "differs"),
    [
        (CHATML, {}, {}),
        (NO_SYSTEM, {}, {"system_role": False, "bos": 1}),
        (
            FORGETFUL,
            {},
            {"prefix_property": False, "generation_prompt": "<|im_start|>assistant\n<think>\n"},
        ),
        (QWEN25, {}, {"unasked": "<|im_start|>system\nYou are a helpful assistant."}),
        (QWEN3, {}, {"strips_thinking": True}),
        (
            QWEN3,
            {"enable_thinking": False},
            {
                "strips_thinking": True,
                "prefix_property": False,
                "generation_prompt": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
            },
        ),
        (
            LLAMA31,
            {},
            {
                "unasked": "<|im_start|>system\nToday: 26 Jul 2024\n\n",
                "dated": True,
                "bos": 1,
                "generation_prompt": "<|im_start|>assistant\n\n",
            },
        ),
        (
            LLAMA31,
            {"date_string": "01 Jan 2100"},
            {
                "unasked": "<|im_start|>system\nToday: 01 Jan 2100\n\n",
                "dated": True,
                "bos": 1,
                "generation_prompt": "<|im_start|>assistant\n\n",
            },
        ),
        (PHI4_MINI, {}, {"generation_prompt": "<|im_start|>assistant"}),
        (PARTS, {}, {"content_as_list": True}),
        (ALTERNATING, {}, {"system_role": False, "alternating": True, "bos": 1}),
    ],
)
def test_quirks(
    tmp_path: Path, template: str, kwargs: dict[str, Any], differs: dict[str, Any]
) -> None:
    plain = {
        "system_role": True,
        "unasked": "",
        "generation_prompt": "<|im_start|>assistant\n",
        "prefix_property": True,
        "strips_thinking": False,
        "content_as_list": False,
        "alternating": False,
        "dated": False,
        "bos": 0,
        "turn_end": "<|im_end|>",
        "ends": ["<|im_end|>"],
        "stops": True,
    }
    found = report(tmp_path, template, **kwargs)
    assert found.as_dict() == {**plain, **differs}
    told = len(found.quirks())
    assert told == len(differs.keys() - {"bos", "generation_prompt", "alternating"})


def test_an_end_of_turn_at_which_nothing_stops_is_told(tmp_path: Path) -> None:
    encoder = made(tmp_path, CHATML)
    found = inspect_template(encoder, [0])
    assert (found.stops, found.ends) == (False, ("<pad>",))
    assert any("no generation stops" in note for note in found.quirks())
    assert inspect_template(encoder).stops is None


def test_the_template_sees_the_same_conversation_as_in_transformers(tmp_path: Path) -> None:
    """Folded, dated, in parts: ids equal those of the library for the same messages."""
    from transformers import PreTrainedTokenizerFast

    talk = [
        Message("system", "be good"),
        Message("user", "how many"),
        Message("assistant", "<think>\nhm\n</think>\n\nSQL: 1"),
        Message("user", "RESULT: 1"),
    ]
    for number, (template, kwargs) in enumerate(
        [
            (QWEN25, {}),
            (QWEN3, {}),
            (QWEN3, {"enable_thinking": False}),
            (LLAMA31, {"date_string": "26 Jul 2024"}),
            (PHI4_MINI, {}),
        ]
    ):
        encoder = made(tmp_path / str(number), template, **kwargs)
        theirs = PreTrainedTokenizerFast.from_pretrained(encoder.where)
        ids = theirs.apply_chat_template(
            [{"role": m.role, "content": m.content} for m in talk],
            add_generation_prompt=True,
            tokenize=True,
            **kwargs,
        )["input_ids"]
        assert encoder.decode(encoder.encode(talk)) == theirs.decode(ids)


def test_thinking_is_left_out_of_earlier_turns_only_where_the_template_does(
    tmp_path: Path,
) -> None:
    thought = Message("assistant", "<think>\nhm\n</think>\n\nSQL: 1", (9, 8, 7))
    talk = [Message("user", "q"), thought, Message("user", "r")]
    stripped = made(tmp_path / "a", QWEN3)
    assert "hm" not in stripped.decode(stripped.encode(talk))
    assert "assistant\nSQL: 1<|im_end|>" in stripped.decode(stripped.encode(talk))
    kept = made(tmp_path / "b", CHATML)
    assert _contains(kept.encode(talk), (9, 8, 7)), "what the engine produced, thought included"
    own = Message("assistant", "SQL: 1", (9, 8, 7))
    assert _contains(stripped.encode([talk[0], own, talk[2]]), (9, 8, 7)), "no thought, own ids"


def _contains(ids: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


def test_a_template_of_ones_own_and_its_variables(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "m", None)
    own = tmp_path / "own.jinja"
    own.write_text(QWEN3)
    encoder = ChatEncoder.from_folder(folder, own, {"enable_thinking": False})
    assert encoder.decode(encoder.encode([Message("user", "q")])).endswith("</think>\n\n")
    with pytest.raises(UserError, match=r"chat template .*none.jinja cannot be read"):
        ChatEncoder.from_folder(folder, tmp_path / "none.jinja")
    with pytest.raises(UserError, match=r"messages cannot be set"):
        ChatEncoder.from_folder(folder, own, {"messages": "x"})
