"""`prefix_scores` of a run, by one join of its tables."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentinel import tables
from sentinel.calibrate import sigmoid
from sentinel.decide.table import POOLS
from sentinel.errors import UserError


def build(
    tasks: pa.Table,
    episodes: pa.Table,
    labels: pa.Table,
    features: pa.Table,
    scores: pa.Table,
    label: str,
    drop_stopped: bool = False,
) -> tuple[pa.Table, dict[str, int]]:
    """Join the tables of one agent on one benchmark into its `prefix_scores`.

    Every episode with an outcome gives a row for every t = 0…T; a missing score or feature is null
    there. p_answerable is sigmoid(−logit), so that small values keep their precision. Where
    answerability does not apply, every task counts as answerable.

    Returns the table and how many episodes each end without an outcome left out. Raises UserError
    for a label that nothing has, and for episodes a monitor ended unless `drop_stopped`.
    """
    ends = Counter(episodes.column("end").to_pylist())
    monitored = sum(ends[end] for end in tables.MONITORED)
    if monitored and not drop_stopped:
        raise UserError(
            f"{monitored} episodes were ended by a monitor and have no outcome",
            "set decide.drop_stopped=true to leave them out and count them",
        )
    known = set(labels.column("label").to_pylist())
    if label not in known and ends["answered"]:
        raise UserError(
            f"no label {label} in the table labels (it has: {', '.join(sorted(known)) or 'none'})",
            "run the label stage, or set `label:` to one of them",
        )
    outcomes = pa.array(tables.OUTCOME_ENDS)
    episodes = episodes.filter(pc.is_in(episodes.column("end"), value_set=outcomes))
    left_out = {end: n for end, n in sorted(ends.items()) if end not in tables.OUTCOME_ENDS}

    place = {
        row["task_id"]: (row["pool"], row["answerable"])
        for row in tasks.select(["task_id", "pool", "answerable"]).to_pylist()
    }
    verdicts = labels.filter(pc.equal(labels.column("label"), label))
    verdict = dict(
        zip(
            verdicts.column("episode_id").to_pylist(),
            verdicts.column("correct").to_pylist(),
            strict=True,
        )
    )
    rows = []
    for e in episodes.select(
        ["agent", "episode_id", "task_id", "group", "end", "turns"]
    ).to_pylist():
        pool, answerable = place[e["task_id"]]
        if pool not in POOLS:
            continue
        answered = e["end"] == "answered"
        rows.append(
            {
                "agent": e["agent"],
                "episode_id": e["episode_id"],
                "group": e["group"],
                "pool": pool,
                "T": e["turns"],
                "answerable": answerable is not False,
                "answered": answered,
                "correct": verdict.get(e["episode_id"]) if answered else None,
            }
        )
    spec = tables.PREFIX_SCORES.columns
    whole = pa.table(
        {name: pa.array([r[name] for r in rows], spec[name].type) for name in _EPISODE}
    )
    T = np.asarray(whole.column("T").to_numpy(), dtype=np.int64)
    grid = whole.take(pa.array(np.repeat(np.arange(len(T)), T + 1)))
    steps = np.concatenate([np.arange(n + 1) for n in T]) if len(T) else np.zeros(0, np.int64)
    grid = grid.append_column("t", pa.array(steps, pa.int64()))

    keys = ["episode_id", "t"]
    for name, head, sign in (
        ("p_answerable", "answerability", -1.0),
        ("p_correct", "correctness", 1.0),
    ):
        part = scores.filter(pc.equal(scores.column("head"), head))
        logits = pc.fill_null(part.column("logit"), float("nan")).to_numpy()
        p = sigmoid(sign * logits)
        values = pa.array(p, pa.float64(), mask=np.isnan(p))
        grid = grid.join(
            part.select(keys).append_column(name, values), keys, join_type="left outer"
        )
    wanted = [*keys, *tables.FEATURES, "tokens_so_far", "seconds_so_far"]
    grid = grid.join(features.select(wanted), keys, join_type="left outer")
    table = grid.select(list(spec)).combine_chunks()
    return tables.PREFIX_SCORES.sort(tables.PREFIX_SCORES.check(table)), left_out


_EPISODE = ("agent", "episode_id", "group", "pool", "T", "answerable", "answered", "correct")
