"""What a judge is asked about in one agent's episodes, read from the run directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.head_stages import Where, read_tasks
from cluster.label_stages import GOLDS, LABEL
from sentinel.judge.prompt import JudgePrompt
from sentinel.judge.rules import is_asked
from sentinel.sql.result import Result


@dataclass(frozen=True, slots=True)
class Case:
    """One episode whose answer the judge is to see: content address, and the message."""

    episode_id: str
    key: str
    shown: str


def strict_rows(where: Where, strict: str) -> list[dict[str, Any]]:
    """The agent's rows of the strict label; none where actions are no SQL."""
    labels = where.run_dir.read("labels", where.benchmark, where.agent)
    rows: list[dict[str, Any]] = labels.filter(pc.equal(labels["label"], strict)).to_pylist()
    return rows


def cases(
    where: Where, rows: list[dict[str, Any]], prompt: JudgePrompt, model: str
) -> dict[str, Case]:
    """episode_id → case, for the rows of the strict label that go to the judge."""
    asked = [row["episode_id"] for row in rows if is_asked(row)]
    if not asked:
        return {}
    episodes = where.run_dir.read("episodes", where.benchmark, where.agent)
    episodes = episodes.select(["episode_id", "task_id", "answer"])
    episodes = episodes.filter(pc.is_in(episodes["episode_id"], pa.array(asked, pa.string())))
    tasks = read_tasks(where)
    golds = _golds(where, set(episodes["task_id"].to_pylist()))
    found = {}
    for row in episodes.to_pylist():
        shown = prompt.user(
            tasks[row["task_id"]]["text"],
            Result.from_json(golds[row["task_id"]]),
            Result.from_json(row["answer"]),
        )
        found[row["episode_id"]] = Case(row["episode_id"], prompt.case_key(model, shown), shown)
    return found


def _golds(where: Where, wanted: set[str]) -> dict[str, str]:
    ids = pa.array(sorted(wanted), pa.string())
    return {
        row["task_id"]: row["result"]
        for _, table in where.run_dir.read_parts(LABEL, where.benchmark, None, GOLDS)
        for row in table.filter(pc.is_in(table["task_id"], ids)).to_pylist()
    }
