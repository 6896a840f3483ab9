"""Which tasks are alike: what no task of another pool may share with one that was trained on."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sentinel.benchmarks.base import Task


def same_text(text: str) -> str:
    """A question's text as it is compared: words only, without case.

    >>> same_text("What IS  it?") == same_text("what is it")
    True
    """
    return " ".join(re.findall(r"\w+", text.casefold()))


def keys(task: Task) -> list[tuple[str, ...]]:
    """What no task of another pool may share: text, (group, values), gold query."""
    found: list[tuple[str, ...]] = [("text", same_text(task.text))]
    if task.gold is not None:
        found.append(("gold", " ".join(task.gold.lower().split())))
    values = task.meta.get("value")
    if values:
        text = {name: str(value) for name, value in sorted(values.items())}
        found.append(("values", task.group, json.dumps(text)))
    return found


def cliques(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Tasks connected by a common key, in the order of their first one."""
    parent = list(range(len(tasks)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[tuple[str, ...], int] = {}
    for i, task in enumerate(tasks):
        for key in keys(task):
            parent[root(i)] = root(first.setdefault(key, i))
    members: dict[int, list[Task]] = defaultdict(list)
    for i, task in enumerate(tasks):
        members[root(i)].append(task)
    yield from members.values()
