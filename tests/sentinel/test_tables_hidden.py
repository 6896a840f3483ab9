"""The table of hidden states: its type depends on the width, and its last bit may differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cluster import files
from sentinel import tables
from sentinel.tables import TableError


def row(vector: Any, turn: int = 1) -> dict[str, Any]:
    where = {"benchmark": "clinic", "agent": "a", "episode_id": "clinic/a/1/0"}
    return {**where, "turn": turn, "layer": 2, "vector": vector}


def halves(*values: float) -> list[np.float16]:
    return [np.float16(v) for v in values]


def test_the_schema_follows_the_width() -> None:
    spec = tables.activations(3)
    assert spec.schema.field("vector").type == pa.list_(pa.float16(), 3)
    made = spec.from_rows([row(halves(1, 2, 3)), row(None, turn=2)])
    assert tables.find("activations", made) == spec
    assert tables.find("episodes", made) is tables.EPISODES
    assert tables.find("layer-002", made) is None
    with pytest.raises(TableError, match="vector is"):
        tables.activations(4).check(made)
    with pytest.raises(TableError, match="not vectors of one width"):
        tables.find("activations", tables.EPISODES.empty())


def test_vectors_and_nulls_survive_a_file(tmp_path: Path) -> None:
    made = tables.activations(3).from_rows([row(None), row(halves(1, -2, 65504), turn=2)])
    files.write_parquet(tmp_path / "x.parquet", made)
    again = tables.activations(3).check(files.read_parquet(tmp_path / "x.parquet"))
    assert again.equals(made)
    assert again["vector"].to_pylist() == [None, [1.0, -2.0, 65504.0]]


def test_the_last_bit_of_a_half_may_round_either_way() -> None:
    spec = tables.activations(2)
    x = np.float16(1234)
    near, far = np.nextafter(x, np.float16(2000)), np.float16(1240)
    base = spec.from_rows([row([x, np.float16(0)])])
    assert tables.diff("activations", base, spec.from_rows([row([near, np.float16(0)])])) == []
    assert tables.diff("activations", base, spec.from_rows([row([far, np.float16(0)])])) != []
    assert tables.diff("activations", base, spec.from_rows([row(None)])) != []
