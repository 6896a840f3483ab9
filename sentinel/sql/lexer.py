"""SQLite's tokens: just enough to tell code from literals, quoted names and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\n\f\r]+|\ufeff)
    | (?P<comment>--[^\n]*|/\*(?:.*?\*/|.*\Z))
    | (?P<string>[xX]?'(?:[^']|'')*'?)
    | (?P<quoted>"(?:[^"]|"")*"?|`(?:[^`]|``)*`?|\[[^\]]*\]?)
    | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[\w$]*)
    | (?P<word>[A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*)
    | (?P<end>;)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_IGNORED = ("space", "comment")


@dataclass(frozen=True, slots=True)
class Token:
    """One token: kind (word, string, quoted, number, space, comment, end, other) and place."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Index after the last character."""
        return self.start + len(self.text)

    @property
    def ignored(self) -> bool:
        """Space or comment."""
        return self.kind in _IGNORED


def tokens(sql: str) -> Iterator[Token]:
    """Every token of the text, in order; joined they are the text again.

    >>> [t.text for t in tokens("a -- ;") if not t.ignored]
    ['a']
    """
    for match in _TOKEN.finditer(sql):
        yield Token(match.lastgroup or "other", match.group(), match.start())


def strip_terminators(sql: str) -> str:
    """The text without the semicolons that follow its statement; comments between them go too.

    >>> strip_terminators("select ';' ;; -- done")
    "select ';' "
    """
    if ";" not in sql:
        return sql
    cut = None
    for token in tokens(sql):
        if token.kind == "end":
            cut = token.start if cut is None else cut
        elif not token.ignored:
            cut = None
    # A text of nothing but semicolons stays as it is: SQLite says that there is no statement.
    return sql if not cut else sql[:cut]
