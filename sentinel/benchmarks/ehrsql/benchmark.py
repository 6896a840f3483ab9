"""`EhrsqlBenchmark`: official question files over a SQLite database that the user has."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.agent.prompts import sql_system_prompt
from sentinel.agent.react import Dialect
from sentinel.benchmarks.base import DataError, Environment, Task
from sentinel.benchmarks.ehrsql import agent_pool, fit
from sentinel.benchmarks.ehrsql.declared import schema_with
from sentinel.benchmarks.ehrsql.questions import QuestionFile, read_questions
from sentinel.errors import UserError
from sentinel.sql.clock import VITAL_NAMES, vital_ranges
from sentinel.sql.per_process import PerProcess

if TYPE_CHECKING:
    from sentinel.sql.sandbox import SandboxPool
    from sentinel.sql.schema import Schema

CLOCK = "2105-12-31 23:59:00"
PAPER_POOLS = {"train": 6179, "calibration": 2160, "heldout": 2101}
"""Questions per pool in the paper: MIMIC-III, train and valid together."""


class EhrsqlBenchmark:
    """EHRSQL's questions on MIMIC-III or eICU, with a text-to-SQL environment.

    `questions` is one file or a list of files (train and valid are merged); `database` the
    SQLite file; `clock` its present; `version` the files' version where their texts cannot tell;
    `official_test` allows a file of the official test split; `tables_file` is the data set's
    `tables.json`, whose foreign keys then count instead of those that the database declares;
    `agent_share` keeps a share of each group's questions as the `agent` pool, drawn by `agent_seed`
    (None: no such pool, as in the paper); `sandbox_workers` run the agent's SQL.

    Raises DataError for files that are missing, damaged, of an unknown version or of two databases,
    and for a database that does not fit them.
    """

    dialect = Dialect()
    max_turns = 8
    scorer = "strict-2022"
    """The official scorer; stored answers are compared as it does."""
    reply_tokens = 640
    """What the longest gold query takes in the vocabulary of an embedded agent."""

    def __init__(
        self,
        name: str = "ehrsql",
        *,
        questions: str | Sequence[str],
        database: str,
        clock: str = CLOCK,
        version: str | None = None,
        official_test: bool = False,
        tables_file: str | None = None,
        agent_share: float | str | None = None,
        agent_seed: int = 7,
        sandbox_workers: int = 1,
    ) -> None:
        self.name, self.clock = name, clock
        self.paths = [questions] if isinstance(questions, str) else list(questions)
        self.database = Path(database)
        self.version, self.official_test = version, official_test
        self.tables_file = Path(tables_file) if tables_file is not None else None
        self.agent_share, self.agent_seed = agent_share, agent_seed
        self.sandbox_workers = sandbox_workers
        self._files: list[QuestionFile] | None = None
        self._agent: frozenset[str] | None = None
        self._sandbox = PerProcess()

    def files(self) -> list[QuestionFile]:
        """The question files, read once and checked against each other."""
        if self._files is None:
            found = self._read()
            for what in ("version", "db_id"):
                values = sorted({getattr(f, what) for f in found})
                if len(values) > 1:
                    raise DataError(
                        f"{self.name}: the question files differ in {what}: {', '.join(values)}",
                        "name files of one release",
                    )
            test = [f.path for f in found if any(q.split == "test" for q in f.questions)]
            if test and not self.official_test:
                raise DataError(
                    f"{test[0]} is the official test split, which is never read by accident",
                    "name train and valid, or set official_test: true",
                )
            self._files = found
        return self._files

    def _read(self) -> list[QuestionFile]:
        return [read_questions(p, self.version) for p in self.paths]

    def tasks(self) -> Sequence[Task]:
        """All questions, in the order of the files; ids are the data set's own."""
        tasks = []
        seen: set[str] = set()
        for file in self.files():
            for q in file.questions:
                if q.id in seen:
                    raise DataError(f"{file.path}: id {q.id} is in two files", "name each once")
                seen.add(q.id)
                meta: dict[str, Any] = {**q.meta, "split": q.split, "version": file.version}
                if q.answer is not None:
                    rows = [list(row) for row in q.answer]
                    meta["answer"] = {"scorer": self.scorer, "rows": rows}
                tasks.append(
                    Task(self.name, q.id, q.group, q.text, q.query is not None, q.query, meta)
                )
        return tasks

    def pools(self) -> Mapping[str, str] | None:
        """The `agent` pool where there is one; whole groups of the rest are shuffled and filled by
        `splits.make_pools`."""
        return dict.fromkeys(self._agent_ids(), "agent") or None

    @property
    def published_pools(self) -> Mapping[str, int] | None:
        """The paper's pool sizes, where these can be its questions; None elsewhere."""
        own = self.agent_share is None and self.files()[0].db_id == "mimic_iii"
        return PAPER_POOLS if own else None

    def withheld_groups(self) -> frozenset[str]:
        """Groups of which the agent pool holds nothing."""
        return agent_pool.withheld(self.tasks(), self.agent_seed)

    def agent_questions(self, seed: int, n: int, *, unanswerable: float = 0.06) -> Sequence[Task]:
        """n questions to train agents on: the agent pool, and new combinations of its values.

        Raises UserError without `agent_share`.
        """
        ids = self._agent_ids()
        if not ids:
            raise UserError(
                f"{self.name} has no agent pool to train on", "set agent_share, such as 0.4"
            )
        tasks = self.tasks()
        return agent_pool.questions(
            [t for t in tasks if t.task_id in ids],
            [t for t in tasks if t.task_id not in ids],
            seed=seed,
            n=n,
            unanswerable=unanswerable,
        )

    def _agent_ids(self) -> frozenset[str]:
        if self._agent is None:
            self._agent = (
                frozenset()
                if self.agent_share is None
                else agent_pool.agent_pool(self.tasks(), self.agent_share, self.agent_seed)
            )
        return self._agent

    def fingerprint(self) -> str:
        """Hash of question files, database file, clock, prompt and cap."""
        state = hashlib.sha256()
        for file in self.files():
            state.update(f"{file.version} {file.sha256}\n".encode())
        state.update(f"{self.clock}\n{self.max_turns}\n{self.system_prompt()}\n".encode())
        with self._existing().open("rb") as stream:
            state.update(hashlib.file_digest(stream, "sha256").digest())
        return state.hexdigest()

    @property
    def not_reproduced(self) -> frozenset[str]:
        """Questions whose published answer no open rebuild of their database gives."""
        known = json.loads((resources.files(__package__) / "not_reproduced.json").read_text())
        return frozenset(known.get(self.files()[0].db_id, ()))

    def system_prompt(self) -> str:
        """The whole protocol with the database's tables."""
        uri = f"{self._existing().resolve().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True)
        try:
            rows = connection.execute(
                "select sql from sqlite_master where type = 'table' and sql is not null"
                " and name not like 'sqlite\\_%' escape '\\' order by rowid"
            ).fetchall()
        except sqlite3.Error as error:
            raise DataError(f"{self.database} is no database: {error}", "check the path") from error
        finally:
            connection.close()
        return sql_system_prompt("\n".join(sql for (sql,) in rows), self.clock, self.max_turns)

    def prepare(self, cache: Path) -> None:
        """Nothing is built; the files are checked against each other and against the database."""
        database = self._existing()
        fit.check_clock_fits(database, self.clock)
        fit.check_gold_compiles(database, self.tasks())
        self.schema()

    def schema(self) -> Schema:
        """Tables, columns and foreign keys, for the features that read an agent's SQL."""
        schema = schema_with(self._existing(), self.tables_file, self.files()[0].db_id)
        return replace(schema, constants=VITAL_NAMES)

    def make_env(self, task: Task) -> Environment:
        """A text-to-SQL environment on this process's sandbox workers, started at first use."""
        from sentinel.benchmarks.sql_env import SqlEnvironment

        return SqlEnvironment(self.sandbox(), task)

    def sandbox(self) -> SandboxPool:
        """The sandbox pool of this process; vital ranges are numbers in gold and answer alike."""
        from sentinel.sql.sandbox import SandboxPool

        return self._sandbox.get(
            lambda: SandboxPool(
                self._existing(), self.clock, workers=self.sandbox_workers, rewrite=vital_ranges
            )
        )

    def close(self) -> None:
        """End the sandbox workers of this process."""
        self._sandbox.close()

    def _existing(self) -> Path:
        if not self.database.is_file():
            raise DataError(
                f"{self.name}: no database at {self.database}",
                "set database to the SQLite file of the data set",
            )
        return self.database
