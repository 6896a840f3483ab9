"""Blocks of the matrix, in any cut, give the rows and summary of the direct call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import small_round_scores

from sentinel.cascade import CascadeConfig, cascade, from_table
from sentinel.cascade.sweep import block, blocks, input_hash, matrix, summaries
from sentinel.errors import UserError


def named(table: pa.Table, cell: str, scorer: str) -> pa.Table:
    for name, value in (("cell", cell), ("scorer", scorer)):
        table = table.append_column(name, pa.array([value] * table.num_rows))
    return table


PAPER = CascadeConfig.of(["0.95", "0.8"], "paper", seeds=7, gates=3)


@pytest.mark.parametrize("size", [1, 3, 7, 20])
def test_any_cut_into_blocks_equals_the_direct_call(size: int):
    given = [
        (f"{cell}.parquet", named(small_round_scores.table(seed, tasks=60), cell, "probe"))
        for seed, cell in enumerate(("a", "b"))
    ]
    whole = matrix(given, PAPER)
    cut = list(blocks(whole, size))
    assert len(cut) == 2 * -(-7 // size)
    table = pa.concat_tables(block(whole, part)["cascade_rows"] for part in reversed(cut))
    found = summaries(table, PAPER.targets)
    direct: list[dict[str, Any]] = cascade(pa.concat_tables(t for _, t in given), PAPER)["cells"]
    assert [(f["cell"], f["scorer"], f["seeds"]) for f in found] == [
        ("a", "probe", 7),
        ("b", "probe", 7),
    ]
    assert [f["summary"] for f in found] == [d["seeds"]["summary"] for d in direct]
    assert found[0]["summary"][0]["recall_sd"] is not None


def test_names_of_blocks_and_tables_with_their_own_pools():
    own = small_round_scores.table(tasks=60, pools=True)
    whole = matrix([("t", own)], PAPER)
    assert [part.name for part in blocks(whole, 5)] == ["seeds-0-0"]
    whole = matrix([("t", small_round_scores.table(tasks=60))], replace(PAPER, seed=3))
    assert [part.name for part in blocks(whole, 5)] == ["seeds-3-7", "seeds-8-9"]


def test_faults_name_the_table():
    table = small_round_scores.table(tasks=20)
    with pytest.raises(UserError, match=r"x and y both hold cell cell under scorer scorer"):
        matrix([("x", table), ("y", table)], PAPER)
    with pytest.raises(UserError, match=r"^y: table round_scores: missing columns: cost"):
        matrix([("x", table), ("y", table.drop_columns(["cost"]))], PAPER)


def test_input_hash_changes_with_data_and_settings_but_not_with_the_number_of_seeds():
    table = small_round_scores.table(tasks=20)
    rounds = from_table(table, 3)[0]
    shuffled = table.take(np.random.default_rng(0).permutation(table.num_rows))
    same = input_hash(rounds, PAPER)
    assert input_hash(from_table(shuffled, 3)[0], replace(PAPER, seeds=20, seed=4)) == same
    score = rounds.score.copy()
    score[0, 0] += 1e-12
    others = [
        input_hash(replace(rounds, score=score), PAPER),
        input_hash(rounds, replace(PAPER, margin="0.01")),
        input_hash(rounds, replace(PAPER, targets=("0.8",))),
        input_hash(replace(rounds, cost=rounds.cost + 1), PAPER),
    ]
    assert len({same, *others}) == 5
