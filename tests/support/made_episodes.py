"""Made-up text-to-SQL episodes with a signal that heads can learn on groups they have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.run_dir import RunDir
from sentinel.agent.react import SQL_DIALECT
from sentinel.episodes import Episode, Turn, episode_id, to_rows
from sentinel.sql.result import Result
from sentinel.sql.sandbox import SandboxPool
from sentinel.tables import EPISODES, TASKS, TURNS

DDL = """
CREATE TABLE patients (subject_id INTEGER PRIMARY KEY, gender TEXT, age INT);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, n INT,
  subject_id INT REFERENCES patients(subject_id));
"""
NAMES = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine")


def made_tasks(n: int = 60, groups: int = 15, folds: int = 5) -> list[dict[str, Any]]:
    """Rows of the `tasks` table: every fourth question has no answer; groups never span pools."""
    tasks = []
    for i in range(n):
        group = i % groups
        pool = "calibration" if group % 5 == 3 else "heldout" if group % 5 == 4 else "train"
        answerable = (i // groups) % 4 != 3
        about = "how many visits" if answerable else "what is the phone number"
        tasks.append(
            {
                "benchmark": "made",
                "task_id": f"q{i:03d}",
                "group": f"g{group:02d}",
                "pool": pool,
                "fold": group % folds if pool == "train" else None,
                "text": f"{NAMES[group % len(NAMES)]}: {about} of patient {i}?",
                "answerable": answerable,
                "gold": f"SELECT n FROM visits WHERE subject_id = {i}" if answerable else None,
                "meta": "{}",
            }
        )
    train = sorted({t["group"] for t in tasks if t["pool"] == "train"})
    for task in tasks:
        if task["fold"] is not None:
            task["fold"] = train.index(task["group"]) % folds
    return tasks


def made_episode(
    task: dict[str, Any], agent: str = "steady", seed: int = 0, **changes: Any
) -> Episode:
    """One episode: half of the answers read the wrong column, and their text shows it."""
    number = int(task["task_id"][1:])
    rng = np.random.default_rng([seed, number])
    where = ("made", agent, episode_id("made", agent, task["task_id"], 0))
    wrong = bool(rng.random() < 0.5)
    column = "age" if wrong else "n"
    table = "patients" if wrong else "visits"
    value = 40 + number % 9 if wrong else number % 7
    sql = f"SELECT {column} FROM {table} WHERE subject_id = {number}"
    result = Result((column,), ((value,),))
    looks = int(rng.integers(0, 3))
    steps = [
        _turn(where, i + 1, "act", f"SELECT count(*) FROM {table} LIMIT {i + 1}", "1 rows", rng)
        for i in range(looks)
    ]
    refuses = not task["answerable"] and rng.random() < 0.5
    kind = "abstain" if refuses else "final"
    steps.append(_turn(where, looks + 1, kind, "" if refuses else sql, f"1 rows [[{value}]]", rng))
    content: dict[str, Any] = {
        "task_id": task["task_id"],
        "group": task["group"],
        "rollout": 0,
        "end": "abstained" if refuses else "answered",
        "turns": len(steps),
        "action": None if refuses else sql,
        "answer": None if refuses else result.to_json(),
        "steps": steps,
    }
    return Episode(*where, **(content | changes))


def made_database(path: Any, n: int = 60) -> None:
    """The database that the made-up questions are about."""
    import sqlite3

    connection = sqlite3.connect(path)
    connection.executescript(DDL)
    for i in range(n):
        connection.execute("INSERT INTO patients VALUES (?, ?, ?)", (i, "fm"[i % 2], 40 + i % 9))
        connection.execute("INSERT INTO visits VALUES (?, ?, ?)", (i, i % 7, i))
    connection.commit()
    connection.close()


def _turn(
    where: tuple[str, str, str], number: int, kind: str, action: str, shown: str, rng: Any
) -> Turn:
    n = int(rng.integers(1, 4))
    logs = np.log(rng.dirichlet(np.ones(5), n)).astype(np.float32)
    logs = -np.sort(-logs, axis=1)
    return Turn(
        *where,
        number,
        prompt_ids=[1, 2],
        generated_ids=[3] * n,
        text=action,
        kind=kind,
        thought="look" if number == 1 else "",
        action=action,
        observation=shown,
        rendered=shown,
        status="none" if kind == "abstain" else "ok",
        prompt_tokens=2,
        generated_tokens=n,
        logprobs=logs[:, 0].tolist(),
        top_ids=[0, 1, 2, 3, 4] * n,
        top_logprobs=logs.ravel().tolist(),
        engine_seconds=0.1,
    )


class MadeBenchmark:
    """The made-up questions as a benchmark: `kind: made_episodes:MadeBenchmark`."""

    dialect = SQL_DIALECT

    def __init__(self, name: str = "made") -> None:
        self.name = name
        self._folder: Path | None = None
        self._pool: SandboxPool | None = None

    def prepare(self, cache: Path) -> None:
        """Build the database."""
        self._folder = cache
        cache.mkdir(parents=True, exist_ok=True)
        if not (cache / "made.sqlite").exists():
            made_database(cache / "made.sqlite")

    def sandbox(self) -> SandboxPool:
        """The sandbox over the database."""
        if self._pool is None:
            assert self._folder is not None
            self._pool = SandboxPool(self._folder / "made.sqlite", "2105-12-31 23:59:00")
        return self._pool

    def close(self) -> None:
        """End the sandbox."""
        if self._pool is not None:
            self._pool.close()


def made_collection(run_dir: RunDir, agents: Sequence[str] = ("steady",), **changes: Any) -> None:
    """Write the tables that collection leaves behind, for some agents."""
    tasks = made_tasks()
    run_dir.write_table("tasks", "made", None, TASKS.from_rows(tasks), stage="collect", source="x")
    for seed, agent in enumerate(agents):
        rows = [to_rows(made_episode(t, agent, seed, **changes)) for t in tasks]
        episodes = EPISODES.from_rows([r for r, _ in rows])
        turns = TURNS.from_rows([t for _, many in rows for t in many])
        for name, table in (("episodes", episodes), ("turns", turns)):
            run_dir.write_table(name, "made", agent, table, stage="collect", source=agent)
