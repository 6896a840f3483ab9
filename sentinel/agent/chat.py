"""Messages to token ids through a model's own chat template, without letting content forge control.

The template is rendered with placeholders instead of contents. Its own text is then tokenised with
control tokens recognised, contents with control tokens as ordinary text, and an assistant message
that carries the ids its engine produced is used as it is. So a cell that reads `<|end|>` stays
text, and the prompt of turn k+1 begins with the prompt and the generation of turn k wherever the
template leaves history alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.agent.template import MARKS, THOUGHT_END, ChatTemplate, find_template, read_json
from sentinel.engine import Message
from sentinel.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CACHED = 8192


class ChatEncoder:
    """A tokenizer with its chat template. Build one with `from_folder`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        special_tokens: dict[str, str] | None = None,
        where: str = "the tokenizer",
        takes_instructions: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Check the template once; raises UserError where it cannot carry a conversation.

        `takes_instructions` is False for a model that was trained on bare conversations: it gets no
        system prompt. A folder says so by that key in its tokenizer_config.json. `template_kwargs`
        are the template's own variables (`enable_thinking`, `date_string`).
        """
        self.where, self.takes_instructions = where, takes_instructions
        self.special_tokens = special_tokens or {}
        self._tokenizer, self._plain, self._control = _pair(tokenizer)
        self.template = ChatTemplate(template, self.special_tokens, template_kwargs, where)
        self._bos = tokenizer.token_to_id(self.special_tokens.get("bos_token", ""))
        # Contents and template pieces recur: the question in every turn, the pieces everywhere.
        self._content_ids: Callable[[str], tuple[int, ...]] = lru_cache(_CACHED)(
            self._encode_content
        )
        self._piece_ids: Callable[[str], tuple[int, ...]] = lru_cache(256)(self._encode_piece)
        if self.leading_bos(self.encode([Message("user", "x")])) > 1:
            raise UserError(
                f"the prompt of {where} begins with two BOS tokens",
                "name a corrected template: chat_template_file in the agent's config",
            )

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        template_file: Path | str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatEncoder:
        """The encoder of a model folder: `tokenizer.json` and the template beside it.

        `template_file` replaces the folder's template. Raises UserError when either is missing or
        cannot be read.
        """
        from tokenizers import Tokenizer

        folder = Path(path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise UserError(
                f"{folder} has no tokenizer.json",
                "save a fast tokenizer there (AutoTokenizer.from_pretrained(…).save_pretrained)",
            )
        try:
            tokenizer = Tokenizer.from_file(str(file))
            config = read_json(folder / "tokenizer_config.json")
            special = read_json(folder / "special_tokens_map.json") | config
        except Exception as error:  # `tokenizers` raises bare Exception for a damaged file
            raise UserError(
                f"the tokenizer of {folder} cannot be read: {error}", "copy the model folder again"
            ) from error
        names = {k: t for k, v in special.items() if k.endswith("_token") and (t := _text(v))}
        instructed = bool(config.get("takes_instructions", True))
        own = None if template_file is None else Path(template_file)
        template = find_template(folder, config, own)
        return cls(tokenizer, template, names, str(folder), instructed, template_kwargs)

    @property
    def has_system_role(self) -> bool:
        """Whether the template carries a system message; else it opens the first user message."""
        return self.template.has_system_role

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the whole conversation, closed by the generation prompt."""
        messages = [self._without_thought(m) for m in self._fold_system(messages)]
        text = self.template.render([m.role for m in messages])
        ids: list[int] = []
        seen = 0
        for i, part in enumerate(MARKS.split(text)):
            if i % 2 == 0:
                ids += self._piece_ids(part)
                continue
            message = messages[int(part)]
            seen += 1
            own = message.token_ids if message.role == "assistant" else None
            ids += self._content_ids(message.content) if own is None else own
        if seen != len(messages):
            raise ValueError(f"the chat template of {self.where} dropped or repeated a message")
        return tuple(ids)

    def encode_piece(self, text: str) -> tuple[int, ...]:
        """Ids of a piece of the template itself; control tokens spelt out in it are tokens."""
        return self._piece_ids(text)

    def is_control(self, token_id: int) -> bool:
        """Whether an id is a control token's."""
        return token_id in self._control

    def leading_bos(self, ids: Sequence[int]) -> int:
        """How many BOS tokens a prompt begins with."""
        return next((n for n, i in enumerate(ids) if i != self._bos), len(ids))

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Ids of one content; control tokens spelt out in it stay text."""
        return self._content_ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens spelt out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def control_id(self, token: str) -> int | None:
        """The id of a control token, or None."""
        return next((i for i, text in self._control.items() if text == token), None)

    def _fold_system(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Without a system role its text opens the first user message."""
        if not messages or messages[0].role != "system" or self.has_system_role:
            return messages
        system, first, *rest = messages
        return [Message("user", f"{system.content}\n\n{first.content}"), *rest]

    def _without_thought(self, message: Message) -> Message:
        """An earlier turn as the template shows it: the answer, without the thinking before it.

        The template itself sees only a placeholder. The answer is tokenised anew, as it would be.
        """
        if not self.template.strips_thinking or message.role != "assistant":
            return message
        before, end, answer = message.content.rpartition(THOUGHT_END)
        return Message("assistant", answer.lstrip("\n")) if before or end else message

    def _encode_piece(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else ()

    def _encode_content(self, text: str) -> tuple[int, ...]:
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate has no bytes
        ids = self._plain.encode(text, add_special_tokens=False).ids
        if not self._control.keys().isdisjoint(ids):
            # The model's own vocabulary holds the control token as a word: break the word in two.
            words = sorted(self._control.values(), key=len, reverse=True)
            pattern = "|".join(f"(?<={re.escape(w[0])})(?={re.escape(w[1:])})" for w in words)
            parts = re.split(pattern, text)
            ids = [i for p in parts for i in self._plain.encode(p, add_special_tokens=False).ids]
        return tuple(ids)


def extends(prompt: Sequence[int], generated: Sequence[int], following: Sequence[int]) -> bool:
    """Whether a prompt begins with the last prompt and what was generated on it."""
    n = len(prompt)
    return (
        len(following) >= n + len(generated)
        and tuple(following[:n]) == tuple(prompt)
        and tuple(following[n : n + len(generated)]) == tuple(generated)
    )


def _pair(tokenizer: Tokenizer) -> tuple[Tokenizer, Tokenizer, dict[int, str]]:
    """Two tokenizers for parts of a text, with and without control tokens; and those tokens.

    Neither puts a space before a part: a part does not begin a text.
    """
    from tokenizers import Tokenizer

    data = json.loads(tokenizer.to_str())
    data["truncation"] = data["padding"] = None
    _no_prefix_space(data)
    marked = Tokenizer.from_str(json.dumps(data))
    # Runs of white space are added tokens of some models and are ordinary text.
    added = data.get("added_tokens") or []
    data["added_tokens"] = [t for t in added if not t["content"].strip(" \t\n\r▁")]
    control = {t["id"]: t["content"] for t in added if t["content"].strip(" \t\n\r▁")}
    plain = Tokenizer.from_str(json.dumps(data))
    return marked, plain, control


def _no_prefix_space(data: dict[str, Any]) -> None:
    for part in ("pre_tokenizer", "normalizer"):
        item = data.get(part) or {}
        for one in [item, *(item.get("pretokenizers") or item.get("normalizers") or [])]:
            if one.get("type") == "Metaspace":
                one["prepend_scheme"] = "never"
            if one.get("type") == "ByteLevel" and "add_prefix_space" in one:
                one["add_prefix_space"] = False
            if one.get("type") == "Prepend":
                one["prepend"] = ""


def _text(value: Any) -> str | None:
    """A special token as the configs spell it: a text, or a mapping with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
