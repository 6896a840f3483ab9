"""Cascade documents and margin sweeps of made-up tables, for the page's tests."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import small_round_scores

from sentinel.cascade import CascadeConfig, cascade
from sentinel.cascade.margins import margin_sweep
from sentinel.user_tables import dumps

Made = tuple[dict[str, Any], list[dict[str, Any]]]
MARGINS = ("0", "0.02", "0.05")


def named(table: pa.Table, cell: str, scorer: str) -> pa.Table:
    """The table with a cell and a scorer."""
    for name, value in (("cell", cell), ("scorer", scorer)):
        table = table.append_column(name, pa.array([value] * table.num_rows))
    return table


def make(table: pa.Table, targets: list[str], mode: str = "strict", **settings: Any) -> Made:
    """The document as `--json` prints it, read back; and the sweep of its margin."""
    config = CascadeConfig.of(targets, mode, gates=4, **settings)
    document = json.loads(dumps(cascade(table, config)))
    return document, list(margin_sweep(table, config, MARGINS))


def paper() -> Made:
    """Two cells, three seeds, two targets."""
    cells = [
        named(small_round_scores.table(1, 120), "craft/a", "probe"),
        named(small_round_scores.table(2, 120, separation=1.2), "shop/b", "probe"),
    ]
    return make(pa.concat_tables(cells), ["0.85", "0.9"], "paper", seeds=3)


def strict(declared: bool = True) -> Made:
    """One cell with pools of its own where `declared`, and enough successes to promise 0.8."""
    table = small_round_scores.table(3, 420, pools=declared)
    return make(table, ["0.8"])


def few() -> Made:
    """Too few successes: both policies abort nothing, one target is out of the margin's reach."""
    return make(small_round_scores.table(0, 40, rollouts=1), ["0.95", "0.99"])


def hopeless() -> Made:
    """No episode succeeds."""
    table = small_round_scores.table(4, 60, pools=True)
    at = table.schema.get_field_index("success")
    return make(table.set_column(at, "success", pa.array([False] * table.num_rows)), ["0.9"])


def hostile(name: str) -> Made:
    """Cell and scorer bear a name that attacks the page."""
    table = pa.concat_tables(
        [
            named(small_round_scores.table(1, 80), name, "_hidden"),
            named(small_round_scores.table(2, 80), "9007199254740993", name),
        ]
    )
    return make(table, ["0.85"], "paper", seeds=2)
