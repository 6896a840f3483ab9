"""`ClinicBenchmark`: the embedded hospital as a set of tasks with a text-to-SQL environment."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.agent.react import Dialect
from sentinel.benchmarks.base import Environment, Task
from sentinel.benchmarks.clinic import hospital, pools, prompts, questions, schema
from sentinel.benchmarks.clinic.groups import group_ids
from sentinel.benchmarks.clinic.templates import TEMPLATES, TOPICS, Template, Topic
from sentinel.benchmarks.clinic.values import Sources
from sentinel.errors import UserError
from sentinel.sql.per_process import PerProcess

if TYPE_CHECKING:
    from sentinel.sql.sandbox import SandboxPool

UNANSWERABLE = 0.06
"""Share of unanswerable questions, overall and (within a point) in every pool."""
MAX_QUESTIONS = 12_000


@lru_cache(maxsize=2)
def _hospital(seed: int, patients: int) -> tuple[hospital.Rows, str]:
    rows = hospital.hospital_rows(seed, patients)
    return rows, hospital.digest(rows)


@lru_cache(maxsize=1)
def _groups() -> Mapping[str, str]:
    return group_ids(TEMPLATES, TOPICS)


def bind_clock(sql: str) -> str:
    """Gold SQL as an unmodified SQLite runs it: `current_time` is the hospital's clock."""
    return sql.replace("current_time", f"'{schema.CLOCK}'")


class ClinicBenchmark:
    """Questions on a seeded synthetic hospital.

    Parameters: `seed` draws the questions, `n_questions` of them (6 % unanswerable);
    `hospital_seed` and `patients` make the hospital; `schema_in_prompt` chooses the full prompt for
    models that were not trained on the schema; `sandbox_workers` run the agent's SQL. Wrong values
    raise UserError.
    """

    dialect = Dialect()
    max_turns = 8
    clock = schema.CLOCK

    def __init__(
        self,
        name: str = "clinic",
        *,
        seed: int = 1,
        n_questions: int = 1200,
        hospital_seed: int = 2105,
        patients: int = 360,
        schema_in_prompt: bool = False,
        sandbox_workers: int = 1,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise UserError(
                f"clinic: unknown settings {', '.join(sorted(unknown))}",
                "valid are name, seed, n_questions, hospital_seed, patients, schema_in_prompt, "
                "sandbox_workers",
            )
        if not isinstance(name, str) or not name or not isinstance(schema_in_prompt, bool):
            raise UserError(
                "clinic: name must be text and schema_in_prompt true or false",
                "correct the benchmark's config",
            )
        for key, value, low, high in (
            ("seed", seed, 0, 2**63),
            ("n_questions", n_questions, 50, MAX_QUESTIONS),
            ("hospital_seed", hospital_seed, 0, 2**63),
            ("patients", patients, hospital.MIN_PATIENTS, hospital.MAX_PATIENTS),
            ("sandbox_workers", sandbox_workers, 1, 64),
        ):
            _check(key, value, low, high)
        self.name = name
        self.seed, self.n_questions = seed, n_questions
        self.hospital_seed, self.patients = hospital_seed, patients
        self.schema_in_prompt, self.sandbox_workers = schema_in_prompt, sandbox_workers
        self.database: Path | None = None
        self._tasks: Sequence[Task] | None = None
        self._sandbox = PerProcess()

    # --- tasks ---------------------------------------------------------------------------------

    def tasks(self) -> Sequence[Task]:
        """All questions in a stable order, ids `c00000`, `c00001`, …"""
        if self._tasks is None:
            self._tasks = tuple(
                self._generate(questions.BENCHMARK, self.seed, self.n_questions, "c", frozenset())
            )
        return self._tasks

    def agent_questions(
        self, seed: int, n: int, *, unanswerable: float = UNANSWERABLE
    ) -> Sequence[Task]:
        """The `agent` pool: n questions to train and tune agents on, ids `a00000`, …

        Never a question text, a tuple of values or a gold query of any `tasks()`; nothing of
        `withheld_groups()`. Several wordings of one gold query may occur. Raises UserError when the
        hospital has fewer different questions than asked for.
        """
        _check("seed", seed, 0, 2**63)
        _check("n", n, 1, 1_000_000)
        if not 0 <= unanswerable <= 1:
            raise UserError(f"clinic: unanswerable is {unanswerable!r}", "use a share from 0 to 1")
        return tuple(
            self._generate(
                questions.AGENT, seed, n, "a", self.withheld_groups(), unanswerable=unanswerable
            )
        )

    def withheld_groups(self) -> frozenset[str]:
        """Groups (about 14 %, of both kinds and all pools) that no agent question belongs to."""
        groups = _groups()
        return pools.withheld(
            {groups[t.id] for t in TEMPLATES}, {t.id for t in TOPICS}, self.hospital_seed
        )

    def _generate(
        self,
        side: int,
        seed: int,
        n: int,
        prefix: str,
        without: frozenset[str],
        unanswerable: float = UNANSWERABLE,
    ) -> list[Task]:
        groups = _groups()
        connection = self._connect()
        try:
            sources = Sources(connection)
            checker = questions.Checker(connection, bind_clock)
            taken: set[str] = set()
            made: list[questions.Question] = []
            impossible = int(n * unanswerable + 0.5)
            kinds: tuple[tuple[Sequence[Template | Topic], int], ...] = (
                (TEMPLATES, n - impossible),
                (TOPICS, impossible),
            )
            for pool, share in kinds:
                made += questions.generate(
                    sources,
                    checker,
                    [x for x in pool if groups[x.id] not in without],
                    side=side,
                    seed=seed,
                    n=share,
                    taken=taken,
                )
        finally:
            connection.close()
        made.sort(key=lambda q: hashlib.sha256(f"{seed} {q.text}".encode()).digest())
        return [self._task(f"{prefix}{i:05d}", q, groups[q.source.id]) for i, q in enumerate(made)]

    def _task(self, task_id: str, question: questions.Question, group: str) -> Task:
        source = question.source
        meta: dict[str, Any] = {
            "template": source.id,
            "paraphrase": question.paraphrase,
            "values": dict(sorted(question.values.items())),
        }
        if isinstance(source, Template):
            meta["family"] = source.family
        else:
            meta |= {"family": "unanswerable", "tempting": source.tempting}
        return Task(
            benchmark=self.name,
            task_id=task_id,
            group=group,
            text=question.text,
            answerable=isinstance(source, Template),
            gold=question.sql,
            meta=meta,
        )

    # --- the rest of the protocol --------------------------------------------------------------

    def pools(self) -> Mapping[str, str] | None:
        """task_id → calibration, heldout or train, filled kind by kind (see `clinic.pools`)."""
        return pools.stratified_pools(self.tasks())

    def fingerprint(self) -> str:
        """Hash of the hospital's rows, the questions with their gold SQL, the clock and prompt."""
        h = hashlib.sha256(self._digest().encode())
        h.update(f"\n{schema.CLOCK}\n{self.max_turns}\n{self.system_prompt()}\n".encode())
        for task in self.tasks():
            h.update(f"{task.task_id}\t{task.group}\t{task.text}\t{task.gold}\n".encode())
        return h.hexdigest()

    def system_prompt(self) -> str:
        """Two sentences, or the whole protocol with the schema when `schema_in_prompt`."""
        return prompts.FULL if self.schema_in_prompt else prompts.SHORT

    def prepare(self, cache: Path) -> None:
        """Build `cache/clinic-<hash>.sqlite` unless it is there, whole."""
        rows, digest = _hospital(self.hospital_seed, self.patients)
        path = Path(cache).absolute() / f"clinic-{digest[:16]}.sqlite"
        if not _is_whole(path, rows):
            hospital.build(path, rows)
        self.database = path

    def make_env(self, task: Task) -> Environment:
        """A text-to-SQL environment on this process's sandbox workers, started at first use."""
        from sentinel.benchmarks.sql_env import SqlEnvironment

        return SqlEnvironment(self.sandbox(), task)

    def sandbox(self) -> SandboxPool:
        """The sandbox pool of this process; raises UserError before `prepare`."""
        from sentinel.sql.sandbox import SandboxPool

        database, workers = self.database, self.sandbox_workers
        if database is None:
            raise UserError("clinic: the database is not built", "call prepare(cache) first")
        return self._sandbox.get(lambda: SandboxPool(database, schema.CLOCK, workers=workers))

    def close(self) -> None:
        """End the sandbox workers of this process."""
        self._sandbox.close()

    def _digest(self) -> str:
        return _hospital(self.hospital_seed, self.patients)[1]

    def _connect(self) -> sqlite3.Connection:
        if self.database is not None:
            return sqlite3.connect(f"{self.database.as_uri()}?mode=ro&immutable=1", uri=True)
        connection = sqlite3.connect(":memory:")
        hospital.fill(connection, _hospital(self.hospital_seed, self.patients)[0])
        return connection


def _check(key: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(
            f"clinic: {key} is {value!r}", f"set {key} to an integer from {low} to {high}"
        )


def _is_whole(path: Path, rows: hospital.Rows) -> bool:
    """Whether the file is a database that holds every row (a cut file is built again)."""
    if not path.is_file():
        return False
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        if connection.execute("pragma quick_check").fetchall() != [("ok",)]:
            return False
        counts = {t: connection.execute(f"select count(*) from {t}").fetchone()[0] for t in rows}
    except sqlite3.DatabaseError:
        return False
    finally:
        connection.close()
    return counts == {name: len(table) for name, table in rows.items()}
