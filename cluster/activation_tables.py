"""Hidden states as table rows, and back: what the stage writes and what probes read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cluster.head_stages import Where
from sentinel.errors import UserError
from sentinel.tables import ACTIVATIONS, LAYER_SWEEP, activations, activations_of

if TYPE_CHECKING:
    from sentinel.activations.positions import Pass

Vectors = dict[tuple[str, int], NDArray[np.float16]]
"""A vector (d,) by (episode id, round)."""
_BATCH = 4096


def rows(
    benchmark: str,
    agent: str,
    passes: Sequence[Pass],
    layer: int,
    vectors: NDArray[np.float16],
    defined: NDArray[np.bool_],
) -> pa.Table:
    """The table `activations` of one layer: `vectors` (n, d), one row per round of the passes."""
    keys = [(p.episode, r) for p in passes for r in p.rounds]
    n, width = vectors.shape
    if len(keys) != n:
        raise ValueError(f"{n} vectors for {len(keys)} rounds")
    spec = activations(width)
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    columns = {
        "benchmark": pa.array([benchmark] * n, pa.string()),
        "agent": pa.array([agent] * n, pa.string()),
        "episode_id": pa.array([e for e, _ in keys], pa.string()),
        "turn": pa.array([r for _, r in keys], pa.int64()),
        "layer": pa.array([layer] * n, pa.int64()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, width, mask=pa.array(~defined)),
    }
    return spec.sort(spec.check(pa.table(columns, schema=spec.schema)))


def by_round(tables: Iterator[pa.Table] | Sequence[pa.Table], layer: int) -> Vectors:
    """Vectors of one layer by (episode id, round); rows without one are left out."""
    found: Vectors = {}
    for table in tables:
        kept = table.filter(pc.and_(pc.equal(table["layer"], layer), pc.is_valid(table["vector"])))
        width = activations_of(table).columns["vector"].type.list_size
        flat = pc.list_flatten(kept["vector"]).to_numpy().reshape(-1, width)
        keys = zip(kept["episode_id"].to_pylist(), kept["turn"].to_pylist(), strict=True)
        found |= dict(zip(keys, flat, strict=True))
    return found


def read_vectors(where: Where, layer: int) -> Vectors:
    """Hidden states of a cell at one layer, a batch of the file at a time.

    Raises UserError where the stage has not finished.
    """
    path = where.run_dir.table_path(ACTIVATIONS, where.benchmark, where.agent)
    if not path.exists():
        raise UserError(
            f"no hidden states of {where.benchmark}/{where.agent} in {where.run_root}",
            f"run: sentinel activations --run-dir '{where.run_root}'",
        )
    with path.open("rb") as file, pq.ParquetFile(file) as parquet:
        batches = parquet.iter_batches(batch_size=_BATCH)
        return by_round((pa.Table.from_batches([b]) for b in batches), layer)


def chosen_layer(where: Where, mode: str) -> int:
    """The layer that probes of a mode read. Raises UserError where the sweep has not finished."""
    table = where.run_dir.read(LAYER_SWEEP.name, where.benchmark, where.agent)
    for row in table.to_pylist():
        if row["mode"] == mode and row["chosen"]:
            return int(row["layer"])
    raise UserError(
        f"no layer was chosen for {where.benchmark}/{where.agent} in {mode} mode",
        f"run: sentinel activations --run-dir '{where.run_root}'",
    )
