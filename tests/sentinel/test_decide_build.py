"""`prefix_scores` from a run's tables: joined by id, whatever the order of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sentinel import tables
from sentinel.calibrate import sigmoid
from sentinel.decide.build import build
from sentinel.errors import UserError

NAMES = ("tasks", "episodes", "labels", "features", "scores")
EPISODES = 30


def made(end_of_last: str = "answered") -> dict[str, pa.Table]:
    """Thirty episodes in which every number names its own row."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for i in range(EPISODES):
        task = {"benchmark": "w", "task_id": f"0{i:02}", "group": f"0{i % 7}"}
        where = {"benchmark": "w", "agent": "a", "episode_id": f"w/a/0{i:02}/0"}
        end = end_of_last if i == EPISODES - 1 else ("answered", "abstained")[i % 3 == 0]
        turns = 1 + i % 4
        pool = ("train", "calibration", "heldout")[i % 3]
        rows["tasks"].append(task | {"pool": pool, "answerable": i % 5 > 0, "text": "?"})
        rows["episodes"].append(
            where | {k: task[k] for k in ("task_id", "group")} | {"end": end, "turns": turns}
        )
        for label, correct in (("typed", i % 2 == 0), ("strict-2022", i % 2 == 1)):
            rows["labels"].append(where | {"label": label, "correct": correct})
        for t in range(turns + 1):
            numbers = dict.fromkeys(tables.FEATURES, float(100 * i + t))
            rows["features"].append(where | {"t": t, "tokens_so_far": 100 * i + t} | numbers)
            for head, sign in (("answerability", -1), ("correctness", 1)):
                rows["scores"].append(where | {"t": t, "head": head, "logit": sign * (i + t / 8)})
    return {name: typed(name, found) for name, found in rows.items()}


def typed(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a declared table; what they do not say is null or a default."""
    other = {column: DEFAULTS.get(column) for column in tables.ALL[name].columns}
    return tables.ALL[name].from_rows([other | row for row in rows])


DEFAULTS = {
    "rollout": 0, "prompt_tokens": 1, "generated_tokens": 1, "agent_hash": "h", "engine": "e",
    "source": "match", "version": "1", "meta": "{}", "truncated": False, "seconds_so_far": 0.0,
}  # fmt: skip


def joined(found: dict[str, pa.Table], **more: Any) -> pa.Table:
    return build(*(found[name] for name in NAMES), "typed", **more)[0]


def test_every_number_is_its_own_rows() -> None:
    rows = joined(made()).to_pylist()
    assert len(rows) == sum(2 + i % 4 for i in range(EPISODES))
    for row in rows:
        i = int(row["episode_id"].split("/")[2])
        assert (
            row["p_correct"] == row["p_answerable"] == float(sigmoid(np.float64(i + row["t"] / 8)))
        )
        assert row["lp_mean"] == row["tokens_so_far"] == 100 * i + row["t"]
        assert (row["group"], row["T"]) == (f"0{i % 7}", 1 + i % 4), "ids keep their zeros"
        assert row["correct"] is ((i % 2 == 0) if i % 3 else None)


@pytest.mark.parametrize("name", NAMES)
def test_order_of_rows_means_nothing(name: str) -> None:
    found = made()
    order = np.random.default_rng(3).permutation(found[name].num_rows)
    assert joined(found | {name: found[name].take(pa.array(order))}).equals(joined(found))


def test_a_missing_score_is_null_for_its_row_alone() -> None:
    found = made()
    kept = found["scores"].slice(1)
    first = found["scores"].slice(0, 1).to_pylist()[0]
    whole, cut = joined(found).to_pylist(), joined(found | {"scores": kept}).to_pylist()
    changed = [(a, b) for a, b in zip(whole, cut, strict=True) if a != b]
    assert [(a["episode_id"], a["t"]) for a, _ in changed] == [(first["episode_id"], first["t"])]
    assert changed[0][1]["p_answerable"] is None


def test_ends_of_a_monitor_are_refused_and_others_counted() -> None:
    with pytest.raises(UserError, match="1 episodes were ended by a monitor"):
        joined(made("refused"))
    found = made("engine_error")
    table, left_out = build(*(found[name] for name in NAMES), "typed")
    assert left_out == {"engine_error": 1}
    assert len(set(table["episode_id"].to_pylist())) == EPISODES - 1
