"""The schema of every table, in one place: names, types, keys, units, and what "equal" means.

A column marked `volatile` (times, worker, host, attempt) never takes part in a comparison; one
marked `numeric` (log-probabilities, scores) may differ by 1e-4, because the composition of a batch
changes floats; one marked `half` (float16 vectors) by its last bit besides; one marked `ranked`
(ids of the likeliest tokens) where two ranks nearly tie.
Everything else agrees exactly or the runs differ. An unknown or missing column is an error.
"""

from __future__ import annotations

import pyarrow as pa

from sentinel.tables.audit import AUDIT, AUDIT_LOGITS, FEATURE_SCREEN
from sentinel.tables.decisions import (
    BOOTSTRAP_DRAWS,
    CASCADE_MARGINS,
    CASCADE_ROWS,
    DECISIONS,
    INTERVALS,
    PREFIX_SCORES,
    PREFIX_SCORES_OPTIONAL,
    ROUND_SCORES,
    ROUND_SCORES_BY_MODE,
    ROUND_SCORES_OPTIONAL,
)
from sentinel.tables.equality import NUMERIC_TOLERANCE, TIE_GAP, differences
from sentinel.tables.exits import EXITS, MONITORED
from sentinel.tables.hidden import ACTIVATIONS, LAYER_SWEEP, activations, activations_of
from sentinel.tables.judgements import JUDGEMENTS
from sentinel.tables.schema import VERSION, Column, Table, TableError
from sentinel.tables.stages import (
    ENDS,
    EPISODES,
    FEATURE_ROWS,
    FEATURES,
    LABELS,
    OUTCOME_ENDS,
    SCORES,
    SHARED_SCORES,
    TASKS,
    TURNS,
)

ALL = {
    t.name: t
    for t in (
        TASKS,
        EPISODES,
        TURNS,
        EXITS,
        LABELS,
        JUDGEMENTS,
        FEATURE_ROWS,
        SCORES,
        SHARED_SCORES,
        PREFIX_SCORES,
        ROUND_SCORES,
        *ROUND_SCORES_BY_MODE.values(),
        LAYER_SWEEP,
        CASCADE_ROWS,
        CASCADE_MARGINS,
        DECISIONS,
        BOOTSTRAP_DRAWS,
        INTERVALS,
        AUDIT,
        AUDIT_LOGITS,
        FEATURE_SCREEN,
    )
}


def find(name: str, table: pa.Table) -> Table | None:
    """The declared schema of a table, of its own width where that varies; None for an inner one."""
    return activations_of(table) if name == ACTIVATIONS else ALL.get(name)


def diff(name: str, left: pa.Table, right: pa.Table) -> list[str]:
    """Differences between two tables of one schema, one line each; empty means *equal*."""
    spec = find(name, left)
    if spec is None:
        raise KeyError(name)
    return differences(spec, left, right)


__all__ = [
    "ACTIVATIONS",
    "ALL",
    "AUDIT",
    "AUDIT_LOGITS",
    "BOOTSTRAP_DRAWS",
    "CASCADE_MARGINS",
    "CASCADE_ROWS",
    "DECISIONS",
    "ENDS",
    "EPISODES",
    "EXITS",
    "FEATURES",
    "FEATURE_ROWS",
    "FEATURE_SCREEN",
    "INTERVALS",
    "JUDGEMENTS",
    "LABELS",
    "LAYER_SWEEP",
    "MONITORED",
    "NUMERIC_TOLERANCE",
    "OUTCOME_ENDS",
    "PREFIX_SCORES",
    "PREFIX_SCORES_OPTIONAL",
    "ROUND_SCORES",
    "ROUND_SCORES_BY_MODE",
    "ROUND_SCORES_OPTIONAL",
    "SCORES",
    "SHARED_SCORES",
    "TASKS",
    "TIE_GAP",
    "TURNS",
    "VERSION",
    "Column",
    "Table",
    "TableError",
    "activations",
    "activations_of",
    "diff",
    "differences",
    "find",
]
