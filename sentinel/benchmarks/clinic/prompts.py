"""The harness prompts of the clinic: a short one without a schema, a full one with it.

The short one is for agents that were trained on the schema; it is two sentences, so that a context
of a few hundred tokens holds an episode.
"""

from __future__ import annotations

from sentinel.agent.prompts import sql_system_prompt
from sentinel.benchmarks.clinic import schema

SHORT = (
    "answer the question about the hospital database with one action per turn: SQL to look, "
    "FINAL_SQL to answer. "
    "write FINAL: null only when the database lacks what is asked."
)

_NOTES = """\
All text is lower case. A visit or stay that goes on has no end time. cost.event_id is the row_id \
in the table that cost.event_type names."""

FULL = sql_system_prompt(f"{schema.serialized()}\n{_NOTES}", schema.CLOCK)
