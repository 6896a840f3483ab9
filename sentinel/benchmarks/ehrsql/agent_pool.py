"""The `agent` pool of a fixed question file, and more questions like those in it.

A fixed file has no second generator seed, so agents of one's own are trained on a share of each
group's questions. Whatever shares a text, a tuple of values or a gold query stays on one side:
no question that a monitor is judged on was ever seen in training. Groups are shared on purpose, as
a real model has seen SQL before; some groups are withheld from the agent altogether.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from sentinel.benchmarks.alike import cliques, keys
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.clinic.pools import WITHHELD_EVERY, shuffled_groups
from sentinel.errors import UserError

_FILLED = re.compile(r"\d+$")


def withheld(tasks: Sequence[Task], seed: int) -> frozenset[str]:
    """Every seventh group of each kind (about 15 %) in the order in which pools are filled: spread
    over the pools, and seen by no agent."""
    order = shuffled_groups(t.group for t in tasks)
    chosen: set[str] = set()
    for kind in (True, False):
        groups = {t.group for t in tasks if t.answerable is kind}
        chosen.update([g for g in order if g in groups][seed % WITHHELD_EVERY :: WITHHELD_EVERY])
    return frozenset(chosen)


def agent_pool(tasks: Sequence[Task], share: str | float, seed: int) -> frozenset[str]:
    """Ids of the agent's questions: a seeded `share` of each group that is not withheld.

    Questions that share a key (`keys`) go together; a clique that is too large for what is left of
    its group's share, or that reaches into another group, stays out. Raises UserError for a share
    that is not between 0 and 1.
    """
    part = Fraction(str(share))
    if not 0 < part < 1:
        raise UserError(f"agent_share is {share}", "set a share between 0 and 1, such as 0.4")
    without = withheld(tasks, seed)
    size: dict[str, int] = defaultdict(int)
    of_group: dict[str, list[list[str]]] = defaultdict(list)
    for task in tasks:
        size[task.group] += 1
    for members in cliques(tasks):
        groups = {t.group for t in members}
        if len(groups) == 1 and not groups & without:
            of_group[members[0].group].append([t.task_id for t in members])
    chosen: set[str] = set()
    for number, group in enumerate(sorted(of_group)):
        order = sorted(of_group[group])
        np.random.Generator(np.random.PCG64([seed, number])).shuffle(order)
        room = int(part * size[group] + Fraction(1, 2))
        for ids in order:
            if len(ids) <= room:
                chosen.update(ids)
                room -= len(ids)
    return frozenset(chosen)


def questions(
    agent: Sequence[Task], others: Iterable[Task], *, seed: int, n: int, unanswerable: float
) -> list[Task]:
    """n questions to train on, `unanswerable` of them without an answer where there are any.

    All of the pool's own come first. Further answerable ones have the pool's own values in new
    combinations: each value of a question that stands in its text and in its gold query is replaced
    by another of the same kind (`drug_name2` is a `drug_name`). None has a key of `others`, the
    questions of the other pools. Further unanswerable ones are repeated: their texts have no values
    to replace. Fewer come where new combinations run out.
    """
    rng = np.random.default_rng(seed)
    kinds = {k: [t for t in agent if t.answerable is k] for k in (True, False)}
    if not kinds[True]:
        raise UserError("the agent pool has no answerable question", "use a larger agent_share")
    lacking = int(n * unanswerable + 0.5) if kinds[False] else 0
    repeated = [
        kinds[False][i]
        for k in range(0, lacking, len(kinds[False]) or 1)
        for i in rng.permutation(len(kinds[False]))[: lacking - k]
    ]
    made = [kinds[True][i] for i in rng.permutation(len(kinds[True]))][: n - lacking]
    taken = {key for task in (*others, *made) for key in keys(task)}
    bank = _bank(kinds[True])
    tries = 0
    while len(made) < n - lacking and tries < 20 * n:
        tries += 1
        source = kinds[True][int(rng.integers(len(kinds[True])))]
        task = _refilled(source, bank, rng, len(made))
        if task is not None and not taken.intersection(keys(task)):
            taken.update(keys(task))
            made.append(task)
    both = [*made, *repeated]
    return [both[i] for i in rng.permutation(len(both))]


def _bank(tasks: Iterable[Task]) -> dict[str, list[str]]:
    values: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        for name, value in (task.meta.get("value") or {}).items():
            values[_FILLED.sub("", name)].add(str(value))
    return {kind: sorted(found) for kind, found in values.items()}


def _refilled(
    task: Task, bank: Mapping[str, Sequence[str]], rng: np.random.Generator, number: int
) -> Task | None:
    text, gold = task.text, task.gold or ""
    values: dict[str, Any] = dict(task.meta.get("value") or {})
    changed = False
    for name, value in values.items():
        choices = bank[_FILLED.sub("", name)]
        new = choices[int(rng.integers(len(choices)))]
        here = re.compile(rf"(?<!\w){re.escape(str(value))}(?!\w)", re.IGNORECASE)
        quoted = str(value).replace("'", "''")
        there = re.compile(rf"(?<!\w){re.escape(quoted)}(?!\w)")
        if not here.search(text) or not there.search(gold):
            continue
        text = here.sub(lambda _, new=new: new, text)  # type: ignore[misc]
        literal = new.replace("'", "''")
        gold = there.sub(lambda _, new=literal: new, gold)  # type: ignore[misc]
        values[name], changed = new, changed or new != str(value)
    if not changed:
        return None
    return replace(
        task,
        task_id=f"{task.task_id}~{number}",
        text=text,
        gold=gold,
        meta={"value": values, "source": task.task_id},
    )
