from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cluster.collect_tables import compact
from cluster.expected import expected_lengths, lengths_of
from cluster.run_dir import RunDir
from sentinel.benchmarks.base import Task
from sentinel.episodes import Episode, to_json_line

TASKS = [Task("w", str(i), "ab"[i % 2], "x" * (10 + i)) for i in range(6)]


def by_length(lengths: dict[str, float]) -> list[str]:
    return sorted(lengths, key=lambda t: -lengths[t])


def test_the_text_decides_where_nothing_has_finished() -> None:
    assert by_length(lengths_of([], TASKS)) == ["5", "4", "3", "2", "1", "0"]
    assert lengths_of([], []) == {}


def test_the_task_weighs_more_than_its_group_and_that_more_than_all() -> None:
    seen = [("0", "a", 400), ("2", "a", 300), ("1", "b", 10), ("3", "b", 10)]
    order = by_length(lengths_of(seen, TASKS))
    assert order[0] == "0"
    assert set(order[:3]) == {"0", "2", "4"}, "4 was never seen, its group is slow"


@given(st.permutations([("0", "a", 40), ("2", "a", 31), ("1", "b", 7), ("9", "c", 3)]))
def test_the_order_of_what_was_seen_changes_nothing(seen: list[tuple[str, str, int]]) -> None:
    assert by_length(lengths_of(seen, TASKS)) == by_length(lengths_of(sorted(seen), TASKS))


def test_finished_agents_are_read_from_their_tables(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert by_length(expected_lengths(run, "w", TASKS))[0] == "5"
    for agent, tokens in (("a", {"2": 500, "5": 3}), ("b", {"2": 900, "5": 2})):
        names = [f"w/{agent}/{task}/0" for task in tokens]
        with run.journal("collect", agent, "1", "w") as journal:
            for name, (task, n) in zip(names, tokens.items(), strict=True):
                group = TASKS[int(task)].group
                done = Episode("w", agent, name, task, group, 0, "cap", 0, generated_tokens=n)
                journal.append(to_json_line(done))
        compact(run, "w", agent, names, "h")
    lengths = expected_lengths(run, "w", TASKS)
    assert by_length(lengths)[0] == "2"
    assert by_length(lengths)[-1] == "5"
    assert expected_lengths(run, "other", TASKS) == lengths_of([], TASKS)
