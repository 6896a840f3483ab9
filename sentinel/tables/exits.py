"""What a frozen monitor decided while the agent worked: collections with `stop_with` have it."""

from __future__ import annotations

from sentinel.tables.schema import BOOL, EPISODE, FLOAT, INT, STRING, Table, exact, maybe, numeric

MONITORED = ("stopped", "refused")
"""Ends that a monitor caused; such an episode has no outcome of its own."""

EXITS = Table(
    "exits",
    ("benchmark", "agent", "episode_id"),
    {
        **EPISODE,
        "monitor": exact(STRING, "hash of the frozen monitor"),
        "policy": exact(STRING, "what of it was obeyed: system and λ, or the cascade's target"),
        "exit_time": exact(INT, "turns that were run when it fired; T where nothing did"),
        "exit_by": maybe(STRING, "gate, stop, chow or round gate; null where nothing fired"),
        "delivered": maybe(BOOL, "the answer leaves the system; null without an outcome"),
        "p_answerable": numeric(FLOAT, "raw, at the exit; null where none was read, as below"),
        "p_prefix": numeric(FLOAT, "calibrated, of the stop"),
        "p_delivery": numeric(FLOAT, "calibrated, of Chow's rule"),
        "score": numeric(FLOAT, "f_r of the last round gate that was read"),
    },
)
