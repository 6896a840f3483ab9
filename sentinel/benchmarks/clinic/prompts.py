"""The harness prompts of the clinic: a short one without a schema, a full one with it."""

from __future__ import annotations

from sentinel.benchmarks.clinic import schema

SHORT = (
    "answer the question about the hospital database with one action per turn: SQL to look, "
    "FINAL_SQL to answer. "
    "write FINAL: null only when the database lacks what is asked."
)

FULL = f"""You answer questions about a hospital's SQLite database, one action per turn.

Each turn is a line `THOUGHT: ...` followed by exactly one of
- `SQL: <query>` to explore; you are shown its result,
- `FINAL_SQL: <query>` to answer; the result of this query is your answer,
- `FINAL: null` to decline, only when the schema lacks the information that is asked for.
You may add `BEST_SO_FAR: <query>` to note the query you would answer with now. You have at most
8 turns. Queries only read. An empty result does not prove that the question cannot be answered.

All text is lower case. `current_time` is {schema.CLOCK}; write time windows relative to it, for
example `datetime(current_time, '-1 year')`. A stay that goes on has no end time. `cost.event_id`
is the row_id in the table that `cost.event_type` names.

Schema:
{schema.serialized()}"""
