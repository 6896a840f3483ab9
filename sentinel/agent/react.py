"""The ReAct protocol: what one turn of an agent may say, and the parser that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["act", "final", "abstain", "malformed"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The keywords of a benchmark: an act (`SQL` or `ACTION`), and how an episode is closed."""

    act: str = "SQL"
    final: str | None = "FINAL_SQL"
    abstain: str | None = "FINAL: null"


@dataclass(frozen=True, slots=True)
class Action:
    """One parsed turn.

    `text` is the raw text the model wrote as its action, unchanged but for the decoration named in
    `forgiven`; `problem` says in one line what is wrong with a malformed turn.
    """

    kind: Kind
    thought: str = ""
    text: str = ""
    best_so_far: str | None = None
    forgiven: tuple[str, ...] = ()
    problem: str | None = None
