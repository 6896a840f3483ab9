from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster import collect_tables
from cluster.run_dir import RunDir
from sentinel.episodes import Episode, Turn, to_json_line
from sentinel.errors import UserError

LONG = "b" * 100


def make_episode(number: int, benchmark: str = "clinic", **more: Any) -> Episode:
    where = {"benchmark": benchmark, "agent": "a", "episode_id": f"{benchmark}/a/{number:02d}/0"}
    settings = {"end": "answered", "turns": 1, "task_id": f"{number:02d}", **more}
    steps = [Turn(**where, turn=t + 1) for t in range(settings["turns"])]
    return Episode(**where, group="g", rollout=0, steps=steps, **settings)


def write(run: RunDir, worker: str, *lines: Episode) -> None:
    with run.journal("collect", "a", worker, lines[0].benchmark) as journal:
        for episode in lines:
            journal.append(to_json_line(episode))


def ids(*numbers: int) -> list[str]:
    return [f"clinic/a/{n:02d}/0" for n in numbers]


def test_benchmarks_whose_names_begin_alike_are_apart(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for benchmark in ("clinic", "clinic2", "clinic.2", "c d", LONG):
        write(run, "w", make_episode(1, benchmark))
    for benchmark in ("clinic", "clinic2", "clinic.2", "c d", LONG):
        assert collect_tables.finished(run, benchmark, "a") == {f"{benchmark}/a/01/0"}


def test_only_the_expected_episodes_enter_and_each_must_be_there(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run, "1", make_episode(3), make_episode(1))
    write(run, "2", make_episode(1, end="cap"), make_episode(2))
    collect_tables.compact(run, "clinic", "a", ids(1, 3), "h")
    assert run.read("episodes")["episode_id"].to_pylist() == ids(1, 3)
    assert run.read("episodes")["end"].to_pylist() == ["answered", "answered"], "the first counts"
    assert run.read("turns").num_rows == 2
    with pytest.raises(UserError, match=r"1 episodes of clinic/a are in no journal.*09"):
        collect_tables.compact(run, "clinic", "a", ids(1, 9), "h")
    assert run.read("episodes").num_rows == 2, "the old table stays"
    collect_tables.compact(run, "clinic", "a", ids(1, 2, 3), "h")
    assert run.read("episodes").num_rows == 3


def test_an_episode_without_turns_is_a_row(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run, "1", make_episode(1, end="engine_error", turns=0, error="x"), make_episode(2))
    collect_tables.compact(run, "clinic", "a", ids(1, 2), "h")
    assert run.read("episodes")["end"].to_pylist() == ["engine_error", "answered"]
    assert run.read("turns")["episode_id"].to_pylist() == ids(2)


def test_journals_of_failures_alone_are_set_aside_and_kept(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run, "1", make_episode(1, end="engine_error", turns=0))
    write(run, "2", make_episode(2, end="engine_error", turns=0))
    assert collect_tables.finished(run, "clinic", "a") == set()
    names = sorted(p.name for p in run.journals("collect", "a").iterdir())
    assert names == ["clinic.1.jsonl.failed", "clinic.2.jsonl.failed"]


def test_a_claim_binds_journals_to_their_inputs(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    first = collect_tables.claim(run, "clinic", "a", {"agent": 1, "prompt": "x"})
    assert collect_tables.claim(run, "clinic", "a", {"agent": 1, "prompt": "y"}) != first
    write(run, "1", make_episode(1))
    with pytest.raises(UserError, match="prompt changed"):
        collect_tables.claim(run, "clinic", "a", {"agent": 1, "prompt": "z"})
    assert collect_tables.claim(run, "other", "a", {"agent": 2}) != first
