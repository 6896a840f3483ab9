"""A cell as one Arrow table, so that each scorer reads it without parsing any turn again."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from sentinel.probes.cell import Cell
from sentinel.probes.surface import SURFACE

SCHEMA = pa.schema(
    [
        ("episode_id", pa.string()),
        ("task_id", pa.string()),
        ("group", pa.string()),
        ("rounds_total", pa.int64()),
        ("success", pa.bool_()),
        ("cost_total", pa.int64()),
        ("goal", pa.large_string()),
        ("meta", pa.string()),
        ("round", pa.int64()),
        ("cost", pa.int64()),
        *((name, pa.float64()) for name in SURFACE),
        ("text", pa.large_string()),
    ]
)


def to_table(cell: Cell) -> pa.Table:
    """One row per episode and round r = 1…min(T, G), in order; hidden states are left out."""
    owner, at = np.nonzero(cell.T[:, None] > np.arange(cell.gates))
    each = {
        "episode_id": cell.episode,
        "task_id": cell.task,
        "group": cell.group,
        "rounds_total": cell.T,
        "success": np.array(cell.success, dtype=object),
        "cost_total": cell.cost_total,
        "goal": np.array(cell.goal, dtype=object),
        "meta": np.array([json.dumps(dict(m), sort_keys=True) for m in cell.meta], dtype=object),
    }
    columns = {
        name: pa.array(values[owner].tolist(), SCHEMA.field(name).type)
        for name, values in each.items()
    }
    columns["round"] = pa.array(at.astype(np.int64) + 1)
    columns["cost"] = pa.array(cell.cost[owner, at])
    for k, name in enumerate(SURFACE):
        values = cell.surface[owner, at, k]
        columns[name] = pa.array(values, pa.float64(), mask=np.isnan(values))
    texts = [cell.texts[e][r] for e, r in zip(owner, at, strict=True)]
    columns["text"] = pa.array(texts, pa.large_string())
    facts = {
        "benchmark": cell.benchmark,
        "agent": cell.agent,
        "gates": cell.gates,
        "agent_hash": cell.agent_hash,
        "dropped": dict(cell.dropped),
    }
    schema = SCHEMA.with_metadata({"cell": json.dumps(facts, sort_keys=True)})
    return pa.table(columns, schema=schema)


def from_table(table: pa.Table) -> Cell:
    """Inverse of `to_table`; raises ValueError for another table."""
    if table.schema.names != SCHEMA.names or b"cell" not in (table.schema.metadata or {}):
        raise ValueError(f"not the rounds of a cell: {table.schema.names}")
    facts = json.loads(table.schema.metadata[b"cell"])
    gates = facts["gates"]
    round_ = table["round"].to_numpy()
    start = np.flatnonzero(round_ == 1)
    owner, at = np.cumsum(round_ == 1) - 1, round_ - 1
    head = table.take(pa.array(start))

    def objects(name: str) -> np.ndarray:
        return np.array(head[name].to_pylist(), dtype=object)

    cost = np.zeros((len(start), gates), dtype=np.int64)
    cost[owner, at] = table["cost"].to_numpy()
    surface = np.full((len(start), gates, len(SURFACE)), np.nan)
    for k, name in enumerate(SURFACE):
        surface[owner, at, k] = table[name].to_numpy(zero_copy_only=False)
    texts = table["text"].to_pylist()
    ends = [*start[1:], table.num_rows]
    return Cell(
        facts["benchmark"],
        facts["agent"],
        objects("episode_id"),
        objects("task_id"),
        objects("group"),
        head["rounds_total"].to_numpy().copy(),
        tuple(head["success"].to_pylist()),
        cost,
        head["cost_total"].to_numpy().copy(),
        surface,
        tuple(tuple(texts[a:b]) for a, b in zip(start, ends, strict=True)),
        tuple(head["goal"].to_pylist()),
        tuple(json.loads(m) for m in head["meta"].to_pylist()),
        facts["agent_hash"],
        facts["dropped"],
    )
