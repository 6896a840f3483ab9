"""`EhrsqlBenchmark`: official question files over a SQLite database that the user has."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.agent.prompts import sql_system_prompt
from sentinel.agent.react import Dialect
from sentinel.benchmarks.base import DataError, Environment, Task
from sentinel.benchmarks.ehrsql.questions import QuestionFile, read_questions
from sentinel.sql.clock import vital_ranges

if TYPE_CHECKING:
    from sentinel.sql.sandbox import SandboxPool

CLOCK = "2105-12-31 23:59:00"


class EhrsqlBenchmark:
    """EHRSQL's questions on MIMIC-III or eICU, with a text-to-SQL environment.

    `questions` is one file or a list of files (train and valid are merged); `database` the
    SQLite file; `clock` its present; `version` the files' version where their texts cannot tell;
    `official_test` allows a file of the official test split; `sandbox_workers` run the agent's SQL.

    Raises DataError for files that are missing, damaged, of an unknown version or of two databases.
    """

    dialect = Dialect()
    max_turns = 8

    def __init__(
        self,
        name: str = "ehrsql",
        *,
        questions: str | Sequence[str],
        database: str,
        clock: str = CLOCK,
        version: str | None = None,
        official_test: bool = False,
        sandbox_workers: int = 1,
    ) -> None:
        self.name, self.clock = name, clock
        self.paths = [questions] if isinstance(questions, str) else list(questions)
        self.database = Path(database)
        self.version, self.official_test = version, official_test
        self.sandbox_workers = sandbox_workers
        self._files: list[QuestionFile] | None = None
        self._sandbox: SandboxPool | None = None
        self._sandbox_pid = 0

    def __getstate__(self) -> dict[str, Any]:
        # worker processes do not travel; another process makes its own
        return self.__dict__ | {"_sandbox": None, "_sandbox_pid": 0}

    def files(self) -> list[QuestionFile]:
        """The question files, read once and checked against each other."""
        if self._files is None:
            found = [read_questions(p, self.version) for p in self.paths]
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
                    meta["answer"] = {"scorer": "strict-2022", "rows": rows}
                tasks.append(
                    Task(self.name, q.id, q.group, q.text, q.query is not None, q.query, meta)
                )
        return tasks

    def pools(self) -> Mapping[str, str] | None:
        """None: whole groups are shuffled and filled by `splits.make_pools`."""
        return None

    def fingerprint(self) -> str:
        """Hash of question files, database file, clock, prompt and cap."""
        state = hashlib.sha256()
        for file in self.files():
            state.update(f"{file.version} {file.sha256}\n".encode())
        state.update(f"{self.clock}\n{self.max_turns}\n{self.system_prompt()}\n".encode())
        with self._existing().open("rb") as stream:
            state.update(hashlib.file_digest(stream, "sha256").digest())
        return state.hexdigest()

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
        """Nothing is built; the files are checked."""
        self._existing()
        self.files()

    def make_env(self, task: Task) -> Environment:
        """A text-to-SQL environment on this process's sandbox workers, started at first use."""
        from sentinel.benchmarks.sql_env import SqlEnvironment

        return SqlEnvironment(self.sandbox(), task)

    def sandbox(self) -> SandboxPool:
        """The sandbox pool of this process; vital ranges are numbers in gold and answer alike."""
        from sentinel.sql.sandbox import SandboxPool

        if self._sandbox is None or self._sandbox_pid != os.getpid():
            self._sandbox = SandboxPool(
                self._existing(), self.clock, workers=self.sandbox_workers, rewrite=vital_ranges
            )
            self._sandbox_pid = os.getpid()
        return self._sandbox

    def close(self) -> None:
        """End the sandbox workers of this process."""
        if self._sandbox is not None and self._sandbox_pid == os.getpid():
            self._sandbox.close()
        self._sandbox = None

    def _existing(self) -> Path:
        if not self.database.is_file():
            raise DataError(
                f"{self.name}: no database at {self.database}",
                "set database to the SQLite file of the data set",
            )
        return self.database
