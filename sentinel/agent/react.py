"""The ReAct protocol: what one turn of an agent may say, and the parser that reads it.

A turn is an optional thought and exactly one action, each starting a line with its label:

    THOUGHT: the visit table has the dates
    SQL: select max(admittime) from admissions

`parse` accepts what real models write instead, as long as it can name what it forgave; whatever it
cannot name is malformed. Rules that are choices:

- The first action counts and the rest is dropped: it was written before the answer to the first.
- Text from an invented observation on is cut off, actions included.
- An action counts only where it starts a line (or is a tool call in JSON that does): one mentioned
  inside a thought is not carried out.
- An action that the token limit cut off is malformed, even if what is left would run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

Kind = Literal["act", "final", "abstain", "malformed"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The keywords of a benchmark: an act (`SQL` or `ACTION`), and how an episode is closed."""

    act: str = "SQL"
    final: str | None = "FINAL_SQL"
    abstain: str | None = "FINAL: null"

    @property
    def is_sql(self) -> bool:
        """Whether actions are queries (they may span lines) rather than one-line commands."""
        return self.act == "SQL"

    @property
    def observation(self) -> str:
        """The label of what the environment answers."""
        return "RESULT" if self.is_sql else "OBSERVATION"


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


SQL_DIALECT = Dialect()
"""The dialect of text-to-SQL."""

FORGIVEN = (
    "label",
    "markdown",
    "step number",
    "line break",
    "fence",
    "quotes",
    "prose before",
    "prose after",
    "think block",
    "json",
    "action in thought",
    "invented observation",
    "repeated",
    "several actions",
    "null variant",
    "FINAL_SQL: null",
    "FINAL: query",
    "cut off after the action",
)
"""Every name that `Action.forgiven` may hold."""


def format(action: Action, dialect: Dialect = SQL_DIALECT) -> str:
    """The canonical text of a turn; `parse` gives the action back.

    Raises ValueError for a malformed action, and for texts that would be read as something else
    (a line inside that starts with a label).

    >>> print(format(Action("final", thought="count them", text="select count(*) from patients")))
    THOUGHT: count them
    FINAL_SQL: select count(*) from patients
    """
    if action.kind == "act":
        lines = [f"{dialect.act}: {action.text}"]
    elif action.kind == "final" and dialect.final is not None:
        lines = [f"{dialect.final}: {action.text}"]
    elif action.kind == "abstain" and dialect.abstain is not None:
        lines = [dialect.abstain]
    else:
        raise ValueError(f"a turn of kind {action.kind} has no canonical text in this dialect")
    if action.thought:
        lines.insert(0, f"THOUGHT: {action.thought}")
    if action.best_so_far is not None:
        lines.append(f"BEST_SO_FAR: {action.best_so_far}")
    starts = _labels(dialect).finditer("\n".join(lines))
    if sum(1 for _ in starts) != len(lines):
        raise ValueError("a thought or an action holds a line that starts with a label")
    return "\n".join(lines)


def parse(text: str, dialect: Dialect = SQL_DIALECT, finish_reason: str | None = "stop") -> Action:
    """Read one turn. Never raises; what cannot be read is `malformed` with its `problem`.

    >>> parse("Final_SQL: ```sql\\nselect 1\\n```")
    Action(kind='final', thought='', text='select 1', best_so_far=None, \
forgiven=('label', 'fence'), problem=None)
    """
    from sentinel.agent.turn import Reader

    if not text.strip():
        return Action("malformed", problem="the turn is empty")
    action = Reader(dialect, finish_reason == "length").read(text)
    order = [name for name in FORGIVEN if name in action.forgiven]
    return replace(action, forgiven=tuple(order))


@lru_cache(maxsize=16)
def _labels(dialect: Dialect) -> re.Pattern[str]:
    from sentinel.agent.turn import label_pattern

    return label_pattern(dialect)
