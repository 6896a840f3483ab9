"""A model's chat template: found, compiled, rendered with placeholders, and its quirks probed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Template

MARK = "\ue000{}\ue001"
MARKS = re.compile("\ue000(\\d+)\ue001")
THOUGHT_END = "</think>"
_GENERATION_TAG = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
_RESERVED = frozenset({"messages", "add_generation_prompt", "tools", "documents"})


class ChatTemplate:
    """A compiled template and what it does with a conversation.

    `has_system_role`: it carries a system message. `content_as_list`: it wants contents as lists of
    parts. `strips_thinking`: it leaves `<think>…</think>` out of earlier turns. `alternating`: it
    refuses two messages of one role in a row. `dated`: it names a date, which is pinned.

    Args:
        text: the Jinja source.
        special_tokens: `bos_token` and so on, as the tokenizer's config names them.
        kwargs: further variables, e.g. `{"enable_thinking": False}`.
        where: the model, for messages.

    Raises UserError where it cannot be read, or cannot carry user and assistant messages.
    """

    def __init__(
        self,
        text: str,
        special_tokens: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        where: str = "the tokenizer",
    ) -> None:
        self.where = where
        self._variables = {**(special_tokens or {}), **(kwargs or {})}
        if clash := sorted(_RESERVED & self._variables.keys()):
            raise UserError(
                f"template_kwargs of {where}: {', '.join(clash)} cannot be set",
                "remove them from the agent's config",
            )
        self._template = _compile(text, where)
        self.content_as_list = False
        if not self._carries_turns():
            self.content_as_list = True
            if not self._carries_turns():
                raise UserError(
                    f"the chat template of {where} cannot carry user and assistant messages",
                    "use a chat model, or name another template: chat_template_file in the "
                    "agent's config",
                )
        self.has_system_role = self._carries("system", "user") and self._carries(
            "system", "user", "assistant", "user"
        )
        self.alternating = not self._carries("user", "user")
        self.strips_thinking = self._strips_thinking()
        self.dated = "strftime_now" in text or "date_string" in text

    def render(
        self,
        roles: Sequence[str],
        contents: Sequence[str] | None = None,
        *,
        generation_prompt: bool = True,
    ) -> str:
        """The conversation as text, closed by the generation prompt.

        Contents are the placeholders of their messages (`MARK`) unless given.
        """
        texts = [MARK.format(i) for i in range(len(roles))] if contents is None else contents
        messages = [
            {"role": role, "content": [{"type": "text", "text": t}] if self.content_as_list else t}
            for role, t in zip(roles, texts, strict=True)
        ]
        return self._template.render(
            messages=messages,
            add_generation_prompt=generation_prompt,
            **{"tools": None, "documents": None, **self._variables},
        )

    def _carries_turns(self) -> bool:
        return self._carries("user") and self._carries("user", "assistant", "user")

    def _carries(self, *roles: str) -> bool:
        """Whether it renders every message of such a conversation once, in order."""
        found = self._marks(roles, None)
        return found == [str(i) for i in range(len(roles))]

    def _strips_thinking(self) -> bool:
        thought = f"<think>\n{MARK.format(9)}\n{THOUGHT_END}\n\n{MARK.format(1)}"
        contents = [MARK.format(0), thought, MARK.format(2)]
        return self._marks(("user", "assistant", "user"), contents) == ["0", "1", "2"]

    def _marks(self, roles: Sequence[str], contents: Sequence[str] | None) -> list[str] | None:
        from jinja2 import TemplateError

        try:
            return MARKS.findall(self.render(roles, contents))
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError):
            return None


def find_template(folder: Path, config: Mapping[str, Any], file: Path | None = None) -> str:
    """The template's source: a file of one's own, or what the model folder holds.

    Raises UserError where there is none.
    """
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"chat template {file} cannot be read: {error}",
                "mend chat_template_file in the agent's config",
            ) from error
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    found = config.get("chat_template") or read_json(folder / "chat_template.json").get(
        "chat_template"
    )
    if isinstance(found, list):
        named = {t.get("name"): t.get("template") for t in found}
        found = named.get("default") or next(iter(named.values()), None)
    if not isinstance(found, str) or not found:
        raise UserError(
            f"the model in {folder} has no chat template (a base model?)",
            "use its chat model, or name a template: chat_template_file in the agent's config",
        )
    return found


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    if not file.is_file():
        return {}
    data = json.loads(file.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else {}


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
            "name a corrected one: chat_template_file in the agent's config",
        ) from error


def _raise(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _fixed_date(form: str) -> str:
    """The same date for every run: a prompt that names today would differ from day to day."""
    return datetime(2024, 7, 26).strftime(form)
