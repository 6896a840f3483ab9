"""How long an episode is expected to take: from finished episodes of the run, and the task's text.

The number orders the work (longest first, so that no long episode is left for the end) and nothing
else: what an episode answers depends on no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow.parquet as pq

from cluster import files
from cluster.run_dir import RunDir
from sentinel.benchmarks.base import Task

_SHRINK = 2.0
"""Weight of the wider mean against the episodes seen of a group, and of a task."""


def expected_lengths(run_dir: RunDir, benchmark: str, tasks: Sequence[Task]) -> dict[str, float]:
    """Expected length of an episode of each task (task_id → a number; only the order matters).

    Generated tokens of the benchmark's finished agents, averaged over the task, its group and all,
    the wider mean weighing less the more is seen; longer questions first among equals. With no
    finished agent the text alone decides. The same files give the same numbers.
    """
    return lengths_of(_finished(run_dir, benchmark), tasks)


def lengths_of(seen: Iterable[tuple[str, str, int]], tasks: Sequence[Task]) -> dict[str, float]:
    """`expected_lengths` from (task_id, group, generated tokens) of finished episodes.

    >>> a, b = (Task("w", t, "g", t * 3) for t in "ab")
    >>> lengths = lengths_of([("b", "g", 90), ("a", "g", 10)], [a, b])
    >>> lengths["b"] > lengths["a"]
    True
    """
    by_task: dict[str, list[int]] = defaultdict(list)
    by_group: dict[str, list[int]] = defaultdict(list)
    for task_id, group, tokens in seen:
        by_task[task_id].append(tokens)
        by_group[group].append(tokens)
    counts = [n for some in by_group.values() for n in some]
    overall = sum(counts) / len(counts) if counts else 0.0
    longest = max((len(t.text) for t in tasks), default=0) + 1
    out = {}
    for task in tasks:
        prior = _shrunk(by_group.get(task.group, ()), overall)
        seen_here = by_task.get(task.task_id, ())
        out[task.task_id] = _shrunk(seen_here, prior) + len(task.text) / longest
    return out


def _shrunk(seen: Sequence[int], prior: float) -> float:
    return (sum(seen) + _SHRINK * prior) / (len(seen) + _SHRINK)


def _finished(run_dir: RunDir, benchmark: str) -> Iterable[tuple[str, str, int]]:
    folder = run_dir.root / "tables" / "episodes" / f"benchmark={files.safe_name(benchmark)}"
    for path in sorted(folder.glob("agent=*/part.parquet")):
        with path.open("rb") as file:
            table = pq.ParquetFile(file).read(["task_id", "group", "generated_tokens"])
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
