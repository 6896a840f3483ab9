"""The harness instructions that benchmarks give their agents, in our own wording (Appendix H).

Instructions and schema stand first and never change within a benchmark, so that every episode
shares one prefix; the question comes last, in the first user message.
"""

from __future__ import annotations

from sentinel.agent.react import SQL_DIALECT, Dialect

_SQL = """\
You answer questions about a hospital from its SQLite database. Work step by step and be careful: \
clinicians will act on what you report.

{schema}

TIME. In this database it is {clock}. Write datetime('now') or current_time for the present; both \
mean that moment. "This year", "today" and the like refer to it, not to the real calendar.

FORMAT. Every reply is one short thought and exactly one action, each on its own line:

THOUGHT: <why this action>
SQL: <one SQLite query to look at the data; keep the LIMIT small>

When you know how to answer, close with the query whose result is the answer:

THOUGHT: <why it answers the question>
FINAL_SQL: <one SQLite query>

Only if no table holds what the question asks for, close with:

THOUGHT: <what is missing>
FINAL: null

RULES
- The query is the answer: close with FINAL_SQL even if an earlier result already shows the value.
- Never write a RESULT yourself; it comes in the next message.
- An empty result proves nothing: a condition or a time window may be wrong. Look again \
before giving up.
- FINAL: null is only for information that the schema does not record.
- Only SELECT queries; names of tables and columns in lower case, as listed.
- You may add one line BEST_SO_FAR: <your best final query so far, or null>.
- You have {max_turns} replies in all, the closing one included."""


def sql_system_prompt(schema: str, clock: str, max_turns: int = 8) -> str:
    """Instructions of a text-to-SQL benchmark.

    Args:
        schema: the serialised tables (`CREATE TABLE` statements, or any listing).
        clock: the database's present, `YYYY-MM-DD HH:MM:SS`.
        max_turns: the cap that the runner enforces.
    """
    return _SQL.format(schema=schema.strip(), clock=clock, max_turns=max_turns)


def reminder(dialect: Dialect = SQL_DIALECT) -> str:
    """One line that says what a turn looks like; it closes every error observation."""
    forms = [f"{dialect.act}: ..."]
    if dialect.final is not None:
        forms.append(f"{dialect.final}: ...")
    if dialect.abstain is not None:
        forms.append(dialect.abstain)
    return f"Reply with one action on its own line: {' or '.join(forms)}"


def malformed(problem: str, dialect: Dialect = SQL_DIALECT) -> str:
    """The observation of a turn that could not be read."""
    return f"error: {problem}. {reminder(dialect)}"
