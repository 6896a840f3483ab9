"""Chat messages of one finished episode as a transcript with rounds.

A *round* is one turn of the assistant with its action. The text through round r ends after that
action and before the environment answers: the moment at which a gate fires. An unbroken run of
assistant messages is one turn, because the environment has said nothing in between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
INSTRUCTIONS = ("system", "developer")
PROMPT_PRICE, GENERATED_PRICE = 1, 4
COST_UNIT = (
    f"characters, not tokens: prompt price {PROMPT_PRICE}, generated price {GENERATED_PRICE}, each "
    "round's full prompt counted; tool definitions and other parts than text are not in it"
)
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


class RecordError(ValueError):
    """One record that cannot be read; it costs only itself."""


@dataclass(frozen=True)
class Transcript:
    """What a per-round text scorer reads, and what each round cost.

    `text`: all messages but the instructions before the first turn, each led by its role; `ends`
    (T,): where round r's action ends in it; `prompt`, `generated` (T,): characters of each round's
    full prompt (instructions included) and of what the assistant wrote; `merged` assistant messages
    that follow another directly; `other_parts` content parts that are no text.
    """

    text: str
    ends: tuple[int, ...]
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    merged: int = 0
    other_parts: int = 0

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.ends)

    def through(self, r: int) -> str:
        """The text through round r's action, without its feedback; r = 1…T."""
        return self.text[: self.ends[r - 1]]

    def costs(self) -> tuple[int, ...]:
        """c_r, r = 1…T: cumulative, in the unit that COST_UNIT names."""
        total, out = 0, []
        for prompt, generated in zip(self.prompt, self.generated, strict=True):
            total += PROMPT_PRICE * prompt + GENERATED_PRICE * generated
            out.append(total)
        return tuple(out)


def transcript(messages: Any) -> Transcript:
    """OpenAI-style chat messages (list of mappings with `role`) as a transcript.

    Content may be null, text, or a list of parts; tool calls may lack ids and may be of the older
    `function_call` form. Raises RecordError for what is no such list, names an unknown role, or
    holds no turn of the assistant.

    >>> found = transcript([
    ...     {"role": "user", "content": "Where is my order?"},
    ...     {"role": "assistant", "content": None,
    ...      "tool_calls": [{"function": {"name": "find", "arguments": '{"order": "007"}'}}]},
    ...     {"role": "tool", "content": "in Oslo"},
    ...     {"role": "assistant", "content": "In Oslo."},
    ... ])
    >>> found.through(1)
    'user: Where is my order?\\nassistant: find {"order": "007"}\\n'
    >>> found.prompt, found.costs()
    ((18, 46), (102, 180))
    """
    if not isinstance(messages, list):
        raise RecordError(f"messages are {_kind(messages)}, not a list")
    pieces: list[str] = []
    ends: list[int] = []
    prompt: list[int] = []
    generated: list[int] = []
    length = seen = merged = other_parts = 0
    last = ""
    for i, message in enumerate(messages, 1):
        if not isinstance(message, Mapping):
            raise RecordError(f"message {i} is {_kind(message)}, not an object")
        role = message.get("role")
        if role not in ROLES:
            raise RecordError(f"message {i} has the unknown role {json.dumps(role)[:40]}")
        said, skipped = _said(message, i)
        other_parts += skipped
        if prompt or role not in INSTRUCTIONS:
            piece = f"{role}: {said}\n"
            pieces.append(piece)
            length += len(piece)
        if role == "assistant":
            if last == "assistant":
                merged += 1
                generated[-1] += len(said)
                ends[-1] = length
            else:
                prompt.append(seen)
                generated.append(len(said))
                ends.append(length)
        seen += len(said)
        last = role
    if not ends:
        raise RecordError("no message of the assistant")
    return Transcript(
        "".join(pieces), tuple(ends), tuple(prompt), tuple(generated), merged, other_parts
    )


def _said(message: Mapping[str, Any], i: int) -> tuple[str, int]:
    """All text of a message (reasoning, content, refusal, calls) and its parts that are no text."""
    content, skipped = _content(message.get("content"))
    found = [message.get("reasoning_content"), content, message.get("refusal")]
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise RecordError(f"message {i} has tool_calls that are {_kind(calls)}, not a list")
    old = message.get("function_call")
    found += [_call(c) for c in [*(calls or ()), *(() if old is None else (old,))]]
    return "\n".join(f for f in found if isinstance(f, str) and f), skipped


def _content(content: Any) -> tuple[str, int]:
    if not isinstance(content, list):
        return _text(content), 0
    texts, skipped = [], 0
    for part in content:
        kind = part.get("type", "text") if isinstance(part, Mapping) else "text"
        if isinstance(part, str):
            texts.append(part)
        elif kind in TEXT_PARTS and isinstance(part, Mapping):
            texts.append(_text(part.get("text", part.get("refusal"))))
        else:
            skipped += 1
    return "\n".join(t for t in texts if t), skipped


def _call(call: Any) -> str:
    """Name and arguments of a tool call in any of its forms; the JSON of what has no name."""
    inner = call
    if isinstance(call, Mapping):
        inner = next((call[k] for k in ("function", "custom") if call.get(k) is not None), call)
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        return _text(call)
    given = inner.get("arguments", inner.get("input"))
    return f"{inner['name']} {_text(given)}".rstrip()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kind(value: Any) -> str:
    """What JSON calls a value's type."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = ((str, "text"), (int | float, "a number"), (list, "a list"), (Mapping, "an object"))
    return next(name for kind, name in names if isinstance(value, kind))
