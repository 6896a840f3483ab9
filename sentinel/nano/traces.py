"""Training episodes for the nano agents: questions, habits and a real database make whole episodes.

Every exploratory query is executed, so the agent learns on observations as it will meet them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentinel.agent.react import Action
from sentinel.agent.react import format as format_action
from sentinel.benchmarks.base import Task
from sentinel.nano.habits import Habit, in_share, target
from sentinel.sql.observe import observation

if TYPE_CHECKING:
    from sentinel.sql.sandbox import SandboxPool


@dataclass(frozen=True, slots=True)
class Trace:
    """One episode as alternating texts: what the agent is told, and what it writes."""

    told: tuple[str, ...]
    wrote: tuple[str, ...]


def subqueries(sql: str) -> list[str]:
    """Parenthesised selects of a query, innermost first: the natural steps towards it."""
    stack: list[int] = []
    found = []
    for match in re.finditer(r"[()]|'(?:[^']|'')*'", sql):
        if match.group() == "(":
            stack.append(match.end())
        elif match.group() == ")" and stack:
            inner = sql[stack.pop() : match.start()].strip()
            if inner.startswith("select") and inner not in found:
                found.append(inner)
    return found


def _tables(sql: str) -> list[str]:
    """Names after `from` and `join`, once each, in the order of use."""
    return list(dict.fromkeys(re.findall(r"\b(?:from|join) ([a-z_]+)", sql)))


def probes(sql: str) -> list[str]:
    """Small looks at each table of a query, for the patient it is about where there is one."""
    patient = re.search(r"subject_id = (\d+)", sql)
    tables = _tables(sql)
    if not patient:
        return [f"select count(*) from {table}" for table in tables]
    where = f"where subject_id = {patient.group(1)}"
    return [
        f"select gender, dob, dod from patients {where}",
        f"select count(*) from admissions {where}",
        *(f"select count(*) from {table} {where}" for table in tables if table != "admissions"),
    ]


def thought(sql: str) -> str:
    """One line of plan: the tables in the order of use."""
    tables = _tables(sql)
    return "use " + ", ".join(tables) if tables else "no table"


class Fabricator:
    """A plausible query for a question without an answer: that of the most similar question."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._tasks = [t for t in tasks if t.gold]
        self._vectorizer = TfidfVectorizer(token_pattern=r"[a-z_]+", sublinear_tf=True)
        self._matrix = self._vectorizer.fit_transform([t.text for t in self._tasks])

    def __call__(self, question: str) -> str:
        """The query to fabricate for one question."""
        scores = (self._matrix @ self._vectorizer.transform([question]).T).toarray().ravel()
        gold = self._tasks[int(np.argmax(scores))].gold or ""
        numbers = re.findall(r"\b\d{3,6}\b", question)
        if numbers:
            gold = re.sub(r"subject_id = \d+", f"subject_id = {numbers[0]}", gold)
        return gold


def make_traces(
    tasks: Sequence[Task], habit: Habit, pool: SandboxPool, *, seed: int, fabricate: Fabricator
) -> Iterator[Trace]:
    """One trace per task, in order.

    Args:
        tasks: questions of the agent pool only.
        habit: the agent's mix.
        pool: sandbox over the benchmark's database, for the observations.
        seed: decides lengths and thoughts per question, and shares per group.
        fabricate: what to answer when an unanswerable question is not refused.
    """
    generator = np.random.default_rng(seed)
    turns = np.array(sorted(habit.explore))
    weights = np.array([habit.explore[int(n)] for n in turns])
    for task in tasks:
        n = int(generator.choice(turns, p=weights / weights.sum()))
        thinks = generator.random() < habit.thought
        if task.answerable and task.gold:
            final = target(habit, task.gold, task.group, seed)
            about = final or task.gold
        elif in_share(seed, "refuse", task.group, habit.refuse):
            final, about, n = None, fabricate(task.text), min(n, habit.refuse_after)
        else:
            final = about = fabricate(task.text)
        yield _trace(task, about, final, n, thinks, pool)


def _trace(
    task: Task, about: str, final: str | None, n: int, thinks: bool, pool: SandboxPool
) -> Trace:
    steps = [*probes(about), *subqueries(about), about]
    told, wrote = [f"QUESTION: {task.text}"], []
    plan = thought(about) if thinks else ""
    for sql in steps[len(steps) - min(n, len(steps)) :] if n else []:
        wrote.append(format_action(Action("act", thought=plan, text=sql)))
        told.append(f"RESULT: {observation(pool.query(sql))}")
        plan = ""
    if final is None:
        wrote.append(format_action(Action("abstain", thought=plan)))
    else:
        wrote.append(format_action(Action("final", thought=plan, text=final)))
    return Trace(tuple(told), tuple(wrote))
