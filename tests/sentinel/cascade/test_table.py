"""`round_scores` is checked with every fault at once, and laid out whatever the order of rows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import random_rounds
import small_round_scores

from sentinel import tables
from sentinel.cascade import from_table
from sentinel.errors import UserError

G = 3
TYPES = {name: column.type for name, column in tables.ROUND_SCORES.columns.items()}


def rows(n: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    return random_rounds.as_rows(random_rounds.episodes(np.random.default_rng(seed), n, G), G)


def table(found: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in found for name in row)
    return pa.table({n: pa.array([row[n] for row in found], TYPES.get(n)) for n in names})


def test_layout_equals_plain_arrays_in_any_order_of_rows():
    for seed in range(8):
        found = random_rounds.episodes(np.random.default_rng(seed), 15, G)
        flat = random_rounds.as_rows(found, G)
        np.random.default_rng(seed).shuffle(flat)  # type: ignore[arg-type]
        for after in (False, True):
            (got,) = from_table(table(flat), G, after)
            expected = random_rounds.as_rounds(found, G, after)
            for name in ("T", "success", "cost", "alive", "score", "saved"):
                np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_saved_on_the_last_round_is_zero():
    (got,) = from_table(table(rows()), G)
    last = (got.T[:, None] == np.arange(1, G + 1)) & got.alive
    assert last.any()
    assert (got.saved[last] == 0).all()


def test_rounds_after_the_gates_may_be_there_or_not():
    whole = small_round_scores.table(tasks=20)
    short = whole.filter(pa.compute.less_equal(whole.column("round"), 6))
    (a,), (b,) = from_table(whole), from_table(short)
    np.testing.assert_array_equal(a.score, b.score)
    np.testing.assert_array_equal(a.saved, b.saved)


def test_cells_and_scorers_are_laid_out_alone():
    flat = [
        {**row, "cell": cell, "scorer": scorer}
        for cell in ("b", "a")
        for scorer in ("probe", "surface")
        for row in rows()
    ]
    found = from_table(table(flat), G)
    assert [(f.cell, f.scorer) for f in found] == [
        ("a", "probe"),
        ("a", "surface"),
        ("b", "probe"),
        ("b", "surface"),
    ]
    assert {len(f) for f in found} == {12}


def test_episodes_without_an_outcome_are_kept_apart():
    flat = rows()
    for row in flat:
        if row["episode_id"] == "e003":
            row["success"] = None
    (got,) = from_table(table(flat), G)
    assert got.labelled.tolist().count(False) == 1
    assert not got.success[~got.labelled].any()


def test_all_missing_columns_are_named_at_once():
    whole = (
        table(rows()).drop_columns(["cost", "task_id"]).append_column("junk", [[1] * len(rows())])
    )
    with pytest.raises(UserError) as caught:
        from_table(whole, G)
    text = str(caught.value)
    assert "missing columns: task_id, cost" in text
    assert "unknown columns: junk" in text
    assert "optional: cell, scorer, pool" in text


def change(episode: str, round_: int | None, **values: Any) -> list[dict[str, Any]]:
    out = rows()
    for row in out:
        if row["episode_id"] == episode and round_ in (None, row["round"]):
            row.update(values)
    return out


LONG = next(r["episode_id"] for r in rows() if r["rounds_total"] >= 3 and r["task_id"] != "t001")


@pytest.mark.parametrize(
    ("flat", "says"),
    [
        (
            [r for r in rows() if (r["episode_id"], r["round"]) != (LONG, 2)],
            "1 episodes lack a round",
        ),
        (
            [r for r in rows() if (r["episode_id"], r["round"]) != (LONG, 1)],
            "1 episodes lack a round",
        ),
        (
            [r for r in rows() if (r["episode_id"], r["round"]) != (LONG, 3)],
            "1 episodes lack a round",
        ),
        (rows() + rows()[:2], "2 rows repeat"),
        (change(LONG, 1, round=0), "round lies outside"),
        (change(LONG, None, rounds_total=0), "rounds_total < 1"),
        (change(LONG, 1, score=float("inf")), "1 infinite"),
        (change(LONG, 1, cost=-1), "cost lies outside"),
        (change(LONG, 1, cost=10**6), "cost lies outside"),
        (change(LONG, 1, success=None), "success changes within"),
        (change(LONG, 1, cost_total=10**6), "cost_total changes within"),
        (change(LONG, None, cost_total=2**62), "more than 2^62"),
        (change(LONG, None, task_id="t001"), "1 tasks have more than one group"),
        ([{**r, "pool": "train"} for r in rows()], "unknown pools: train"),
        (
            [{**r, "pool": None if r["episode_id"] == LONG else "test"} for r in rows()],
            "pool is null in some",
        ),
    ],
)
def test_faults_are_named(flat: list[dict[str, Any]], says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        from_table(table(flat), G)


def test_costs_that_fall_or_do_not_end_at_the_total():
    flat = [
        {
            "episode_id": "e",
            "task_id": "t",
            "group": "t",
            "round": r,
            "rounds_total": 2,
            "score": 0.0,
            "cost": cost,
            "cost_total": 9,
            "success": True,
        }
        for r, cost in ((1, 5), (2, 4))
    ]
    with pytest.raises(UserError, match=r"cost falls.*cost differs from cost_total"):
        from_table(table(flat), G)


def test_types():
    whole = table(rows())
    numbers = whole.set_column(0, "episode_id", pa.array(range(whole.num_rows)))
    with pytest.raises(UserError, match=r"episode_id cannot be read.*leading zeros"):
        from_table(numbers, G)
    index = whole.column_names.index("cost")
    halves = whole.set_column(index, "cost", pa.array([0.5] * whole.num_rows))
    with pytest.raises(UserError, match="cost cannot be read as int64"):
        from_table(halves, G)
    whole_floats = whole.set_column(index, "cost", whole.column("cost").cast(pa.float64()))
    (a,), (b,) = from_table(whole, G), from_table(whole_floats, G)
    np.testing.assert_array_equal(a.saved, b.saved)
    index = whole.column_names.index("success")
    words = whole.set_column(index, "success", pa.array(["maybe"] * whole.num_rows))
    with pytest.raises(UserError, match="success cannot be read as bool"):
        from_table(words, G)
    with pytest.raises(UserError, match="no rows"):
        from_table(whole.slice(0, 0), G)
    with pytest.raises(UserError, match="0 gates"):
        from_table(whole, 0)


def test_a_table_of_the_stage_passes_its_schema():
    flat = [{**r, "cell": "c", "scorer": "s", "pool": None} for r in rows()]
    checked = tables.ROUND_SCORES.from_rows(flat)
    (got,) = from_table(checked, G)
    assert set(got.pool) == {""}
