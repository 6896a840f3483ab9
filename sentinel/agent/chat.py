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
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.engine import Message
from sentinel.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Template
    from tokenizers import Tokenizer

_MARK = "\ue000{}\ue001"
_MARKS = re.compile("\ue000(\\d+)\ue001")
_GENERATION_TAG = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
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
    ) -> None:
        """Check the template once; raises UserError where it cannot carry a conversation.

        `takes_instructions` is False for a model that was trained on bare conversations: it gets no
        system prompt. A folder says so by that key in its tokenizer_config.json.
        """
        self.where, self.takes_instructions = where, takes_instructions
        self.special_tokens = special_tokens or {}
        self._tokenizer, self._plain, self._control = _pair(tokenizer)
        self._template = _compile(template, where)
        self._bos = tokenizer.token_to_id(self.special_tokens.get("bos_token", ""))
        # Contents and template pieces recur: the question in every turn, the pieces everywhere.
        self._content_ids: Callable[[str], tuple[int, ...]] = lru_cache(_CACHED)(
            self._encode_content
        )
        self._piece_ids: Callable[[str], tuple[int, ...]] = lru_cache(256)(self._encode_piece)
        self.has_system_role = self._probe(("system", "user"))
        if not (self._probe(("user",)) and self._probe(("user", "assistant", "user"))):
            raise UserError(
                f"the chat template of {where} cannot carry user and assistant messages",
                "use a chat model, or put a chat_template.jinja into its folder",
            )

    @classmethod
    def from_folder(cls, path: Path | str) -> ChatEncoder:
        """The encoder of a model folder: `tokenizer.json` and the template beside it.

        Raises UserError when either is missing or cannot be read.
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
            config = _json(folder / "tokenizer_config.json")
            special = _json(folder / "special_tokens_map.json") | config
        except Exception as error:  # `tokenizers` raises bare Exception for a damaged file
            raise UserError(
                f"the tokenizer of {folder} cannot be read: {error}", "copy the model folder again"
            ) from error
        names = {k: t for k, v in special.items() if k.endswith("_token") and (t := _text(v))}
        instructed = bool(config.get("takes_instructions", True))
        return cls(tokenizer, _find_template(folder, config), names, str(folder), instructed)

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the whole conversation, closed by the generation prompt."""
        messages = self._fold_system(messages)
        text = self._render([m.role for m in messages])
        ids: list[int] = []
        seen = 0
        for i, part in enumerate(_MARKS.split(text)):
            if i % 2 == 0:
                ids += self._piece_ids(part)
                continue
            message = messages[int(part)]
            seen += 1
            own = message.token_ids if message.role == "assistant" else None
            ids += self._content_ids(message.content) if own is None else own
        if seen != len(messages):
            raise ValueError(f"the chat template of {self.where} dropped or repeated a message")
        if self._bos is not None and ids[:2] == [self._bos, self._bos]:
            raise AssertionError(f"the prompt begins with two BOS tokens ({self.where})")
        return tuple(ids)

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

    def _render(self, roles: Sequence[str]) -> str:
        messages = [{"role": r, "content": _MARK.format(i)} for i, r in enumerate(roles)]
        return self._template.render(
            messages=messages,
            add_generation_prompt=True,
            tools=None,
            documents=None,
            **self.special_tokens,
        )

    def _probe(self, roles: Sequence[str]) -> bool:
        """Whether the template carries such a conversation: every message once, in order."""
        from jinja2 import TemplateError

        try:
            found = _MARKS.findall(self._render(roles))
        except (TemplateError, TypeError, ValueError, IndexError, KeyError):
            return False
        return found == [str(i) for i in range(len(roles))]

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


def _compile(template: str, where: str) -> Template:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda x, **kw: json.dumps(x, ensure_ascii=False, **kw)
    environment.globals["raise_exception"] = _raise
    if "strftime_now is defined" not in template:
        environment.globals["strftime_now"] = _fixed_date
    try:
        return environment.from_string(_GENERATION_TAG.sub("", template))
    except TemplateError as error:
        raise UserError(
            f"the chat template of {where} cannot be read: {error}",
            "put a corrected chat_template.jinja into its folder",
        ) from error


def _raise(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _fixed_date(form: str) -> str:
    """The same date for every run: a prompt that names today would differ from day to day."""
    return datetime(2024, 7, 26).strftime(form)


def _find_template(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        named = {t.get("name"): t.get("template") for t in found}
        found = named.get("default") or next(iter(named.values()), None)
    if not isinstance(found, str) or not found:
        raise UserError(
            f"the model in {folder} has no chat template (a base model?)",
            "use its chat model, or put a chat_template.jinja into the folder",
        )
    return found


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    data = json.loads(file.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else {}


def _text(value: Any) -> str | None:
    """A special token as the configs spell it: a text, or a mapping with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
