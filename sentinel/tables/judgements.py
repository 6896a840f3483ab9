"""The table of what a judge was asked and replied."""

from __future__ import annotations

from sentinel.tables.schema import BOOL, EPISODE, FLOAT, STRING, Table, exact, maybe

JUDGEMENTS = Table(
    "judgements",
    ("benchmark", "agent", "episode_id", "label"),
    {
        **EPISODE,
        "label": exact(STRING, "judge:MODEL:PROMPT-HASH"),
        "case": exact(STRING, "content address of what was asked; equal content is asked once"),
        "shown": exact(STRING, "the user message: question, gold result, answer"),
        "reply": maybe(STRING, "the judge's reply that was read; null without a verdict"),
        "correct": maybe(BOOL, "its verdict; null where there is none"),
        "cost_usd": maybe(
            FLOAT,
            "dollars that this run paid for it; 0 where an equal question or another run has paid; "
            "null where the price is unknown",
        ),
        "engine": maybe(STRING, "server, model and client that gave the verdict"),
        "error": maybe(STRING, "why there is no verdict"),
    },
)
