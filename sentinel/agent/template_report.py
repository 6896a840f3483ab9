"""What a model's chat template does to a conversation, found at the start of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sentinel.agent.chat import ChatEncoder, extends
from sentinel.agent.template import MARK
from sentinel.engine import Message


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """The quirks of a template with its tokenizer.

    `system_role`: it carries a system message; else that opens the first user message.
    `unasked`: what it says before the first message where no system message is given (a default
    system prompt, a date), BOS left out. `generation_prompt`: what it puts after the last message.
    `prefix_property`: the prompt of a turn and a plain reply begin the prompt of the next turn;
    without it prompts are stored in full. `strips_thinking`: earlier thinking is left out, which
    ends the property as soon as a model thinks. `content_as_list`, `alternating`: what it demands
    of messages. `dated`: it names a date, which is pinned. `bos`: BOS tokens at the start of a
    prompt. `turn_end`: the token after an assistant's message. `ends`: tokens at which a generation
    stops; `stops` says whether `turn_end` is one of them.
    """

    system_role: bool
    unasked: str
    generation_prompt: str
    prefix_property: bool
    strips_thinking: bool
    content_as_list: bool
    alternating: bool
    dated: bool
    bos: int
    turn_end: str | None
    ends: tuple[str, ...]
    stops: bool | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"ends": list(self.ends)}

    def quirks(self) -> list[str]:
        """What a reader should know, in words; empty for a template without quirks."""
        notes = {
            "no system role: the system prompt opens the first user message": not self.system_role,
            "a default system prompt where none is given": bool(self.unasked.strip()),
            "names a date: pinned": self.dated,
            "prompts do not extend each other: stored in full": not self.prefix_property,
            "thinking is left out of earlier turns": self.strips_thinking,
            "contents are lists of parts": self.content_as_list,
            f"replies close with {self.turn_end}, at which no generation stops": (
                self.stops is False
            ),
        }
        return [note for note, holds in notes.items() if holds]


def inspect_template(encoder: ChatEncoder, ends: Collection[int] = ()) -> TemplateReport:
    """Look at a template by what it makes of small conversations.

    `ends` are the ids at which the engine stops (`cluster.engines.folders.end_ids`); without them
    `stops` is None.
    """
    asked = [Message("user", "u")]
    if encoder.has_system_role:
        asked.insert(0, Message("system", "s"))
    first = encoder.encode(asked)
    reply = encoder.encode_text("a")
    more = [*asked, Message("assistant", "a", reply), Message("user", "v")]
    template = encoder.template
    bos = encoder.special_tokens.get("bos_token", "")
    preamble, _, after = template.render(["user"]).partition(MARK.format(0))
    without = template.render(["user"], generation_prompt=False).partition(MARK.format(0))[2]
    turn = template.render(["user", "assistant", "user"]).partition(MARK.format(1))[2]
    between = turn.partition(MARK.format(2))[0]  # closes a reply and opens a user's message
    pieces = encoder.encode_piece
    closing = next((i for i in pieces(between) if encoder.is_control(i)), None)
    return TemplateReport(
        system_role=encoder.has_system_role,
        unasked=_without_end(preamble, between).removeprefix(bos),
        generation_prompt=encoder.decode(_without_start(pieces(after), pieces(without))),
        prefix_property=extends(first, reply, encoder.encode(more)),
        strips_thinking=template.strips_thinking,
        content_as_list=template.content_as_list,
        alternating=template.alternating,
        dated=template.dated,
        bos=encoder.leading_bos(first),
        turn_end=None if closing is None else encoder.decode([closing]),
        ends=tuple(encoder.decode([i]) for i in sorted(ends)),
        stops=None if not ends or closing is None else closing in ends,
    )


def _without_start(ids: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """The ids without the longest start that the others have as well."""
    n = 0
    while n < min(len(ids), len(other)) and ids[n] == other[n]:
        n += 1
    return ids[n:]


def _without_end(text: str, other: str) -> str:
    """The text without the longest end that the other text has as well."""
    n = 0
    while n < min(len(text), len(other)) and text[-n - 1] == other[-n - 1]:
        n += 1
    return text[: len(text) - n]
