"""A result as text: what the agent sees, and what the heads read (the paper's Appendix L form).

Both are built of single-line cells in which SQL NULL, 'None', '' and 'NULL' differ, and in which no
cell can forge a row, a section label or a control token.
"""

from __future__ import annotations

import re

from sentinel.sql.result import Result, Value

MAX_CELL = 200
_SAMPLE_ROWS = 3
_MAX_NAME = 60
# Whatever breaks a line somewhere, reorders it, or hides in it.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)
# Openings and ends of control tokens: '<|end|>', '</s>', '<bos>', '[INST]', '[/INST]', '[SEP]'.
_TOKEN = re.compile(r"<(?=[|/A-Za-z_])|\[(?=/?[A-Z])|\|(?=>)")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def observation(
    result: Result, max_rows: int = 10, max_chars: int = 2000, *, quoted: bool = False
) -> str:
    """The text an agent is shown: a line with the size and the columns, then one line per row.

    At most `max_rows` rows and about `max_chars` characters; what is left out is counted. `quoted`:
    names of columns and errors, which are the agent's words too, stand in quotes as texts do.

    >>> print(observation(Result(("route", "n"), (("po", 3), (None, 1)))))
    2 rows x 2 cols (route, n)
    ['po', 3]
    [NULL, 1]
    """
    if result.error is not None:
        return f"error: {cell(result.error)}" if quoted else _error(result)
    if not result.rows:
        return _EMPTY
    names = (cell(c, _MAX_NAME) if quoted else _name(c) for c in result.columns)
    head = f"{_size(result)} ({', '.join(names)})"
    lines = [_cut(head, max_chars)]
    used = len(lines[0])
    for row in result.rows[:max_rows]:
        line = _cut(_row(row), max(max_chars - used - 1, 0))
        if len(lines) > 1 and used + 1 + len(line) >= max_chars:
            break
        lines.append(line)
        used += 1 + len(line)
    left = result.n_rows - (len(lines) - 1)
    if left or result.truncated:
        lines.append(f"... {left}{'+' if result.truncated else ''} more rows")
    return "\n".join(lines)


def rendered(result: Result) -> str:
    """The one line the heads read: size and the first three rows.

    >>> rendered(Result(("route",), (("po",), (None,))))
    "2 rows x 1 cols; sample [['po'], [NULL]]"
    """
    if result.error is not None:
        return _error(result)
    if not result.rows:
        return _EMPTY
    rows = ", ".join(_row(row) for row in result.rows[:_SAMPLE_ROWS])
    return f"{_size(result)}; sample [{rows}]"


def cell(value: Value, max_chars: int = MAX_CELL) -> str:
    """One value on one line: numbers bare, text quoted as in SQL, NULL bare, blobs x'…'.

    Line breaks and control characters of a text are written with a backslash, and one is put into
    control tokens. A longer text is cut; the number of characters cut stands outside the quotes.
    """
    if value is None:
        return "NULL"
    if isinstance(value, str):
        more = len(value) - max_chars
        text = escape(value[:max_chars]).replace("'", "''")
        return f"'{text}'" if more <= 0 else f"'{text}'...+{more}"
    if isinstance(value, bytes):
        more = len(value) - max_chars // 2
        text = value[: max_chars // 2].hex()
        return f"x'{text}'" if more <= 0 else f"x'{text}'...+{more}"
    return repr(value)


def escape(text: str) -> str:
    """The text on one line, without control tokens; different texts stay different."""
    text = text.replace("\\", "\\\\")
    text = _CONTROL.sub(_escaped, text)
    return _TOKEN.sub(lambda match: match.group() + "\\", text)


_EMPTY = "empty (0 rows)"


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def _size(result: Result) -> str:
    more = "+" if result.truncated else ""
    return f"{result.n_rows}{more} rows x {result.n_cols} cols"


def _row(row: tuple[Value, ...]) -> str:
    return f"[{', '.join(cell(value) for value in row)}]"


def _name(column: str) -> str:
    return _cut(escape(column), _MAX_NAME)


def _error(result: Result) -> str:
    return f"error: {escape(' '.join((result.error or '').split()))[:MAX_CELL]}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
