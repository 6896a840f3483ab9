"""How a judge's reply is read: one digit, or no verdict. Nothing but the reply is looked at."""

from __future__ import annotations

import re

_DIGIT = re.compile(r"[\s\"'`*]*([01])[\s\"'`*.]*", re.ASCII)


def read_verdict(reply: str) -> bool | None:
    """True for 1, False for 0, None for whatever is more or other than that digit.

    Quotes, asterisks, blanks and a full stop around it are let pass.

    >>> [read_verdict(x) for x in ("1", " 0.", "**1**", "10", "1 or 0", "yes", "")]
    [True, False, True, None, None, None, None]
    """
    match = _DIGIT.fullmatch(reply)
    return None if match is None else match.group(1) == "1"


def unreadable(reply: str, cut: bool) -> str:
    """Why a reply is no verdict, in one line."""
    shown = " ".join(reply.split())
    shown = f"{shown[:60]}..." if len(shown) > 60 else shown
    why = "the reply is not one digit" if shown else "the reply is empty"
    more = "; cut at the token limit (judge.max_tokens)" if cut else ""
    return f"{why} ({shown!r}){more}" if shown else f"{why}{more}"
