"""Tables of the hidden states: vectors, whose type depends on their width, and the layer sweep."""

from __future__ import annotations

import pyarrow as pa

from sentinel.tables.schema import (
    BOOL,
    EPISODE,
    FLOAT,
    INT,
    STRING,
    WHERE,
    Column,
    Table,
    TableError,
    exact,
    maybe,
    numeric,
)

ACTIVATIONS = "activations"


def activations(width: int) -> Table:
    """The table of hidden states `width` wide; one row per episode, round and layer."""
    return Table(
        ACTIVATIONS,
        ("benchmark", "agent", "episode_id", "turn", "layer"),
        {
            **EPISODE,
            "turn": exact(INT, "r = 1…T; no row where the turn ran no generated token"),
            "layer": exact(INT, "k = 1…L: the residual stream after block k"),
            "vector": Column(
                pa.list_(pa.float16(), width),
                "(d,) at the last generated token that was run; null where the model gave a NaN",
                nullable=True,
                kind="half",
            ),
        },
    )


def activations_of(table: pa.Table) -> Table:
    """The spec that fits a table of hidden states. Raises TableError where it has no vectors."""
    names = table.column_names
    kind = table.schema.field("vector").type if "vector" in names else None
    if not isinstance(kind, pa.FixedSizeListType):
        raise TableError(f"table {ACTIVATIONS}: vector is {kind}, not vectors of one width")
    return activations(kind.list_size)


LAYER_SWEEP = Table(
    "layer_sweep",
    ("benchmark", "agent", "mode", "layer", "round"),
    {
        **WHERE,
        "mode": exact(STRING, "paper (tasks of the whole cell) or strict (fit tasks only)"),
        "layer": exact(INT, "k = 1…L"),
        "round": exact(INT, "r"),
        "auc": numeric(FLOAT, "out-of-fold AUROC of a probe at r; null where it is undefined"),
        "episodes": exact(INT, "episodes scored at r"),
        "failures": exact(INT, "of those, failed"),
        "chosen": maybe(BOOL, "the layer of this mode; null until every layer is measured"),
    },
)
