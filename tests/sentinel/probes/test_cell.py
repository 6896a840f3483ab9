"""Episodes as a cell: outcomes, costs, texts; what is dropped and what is refused; as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import made_episodes
import made_rounds
import numpy as np
import pytest

from sentinel.errors import UserError
from sentinel.probes import Cell, cell_of
from sentinel.probes.cell import Prices, outcome
from sentinel.probes.rows import SCHEMA, from_table, to_table


def lay_out(episodes: list[Any], tasks: list[Any], **more: Any) -> Cell:
    correct = {e.episode_id: e.success for e in episodes}
    known = {t["task_id"]: t for t in tasks}
    return cell_of(episodes, known, correct, benchmark="world", agent="able", **more)


@pytest.fixture(scope="module")
def made() -> tuple[list[Any], list[Any]]:
    tasks = made_rounds.tasks(30)
    return [made_rounds.episode(t, "able", 0)[0] for t in tasks], tasks


def test_success_on_text_to_sql_is_a_right_answer_to_a_question_that_has_one():
    assert outcome("answered", True, True) is True
    assert outcome("answered", True, None) is None  # nobody knows
    assert outcome("answered", False, False) is False
    assert outcome("abstained", False, True) is False  # a right refusal is no success to lose
    assert outcome("cap", True, False) is False
    assert [outcome("cap", None, y) for y in (True, False, None)] == [True, False, None]


def test_costs_count_each_rounds_full_prompt(made):
    episodes, tasks = made
    cell = lay_out(episodes, tasks)
    of = {e.episode_id: e for e in episodes}
    for i, name in enumerate(cell.episode):
        steps = of[name].steps
        total = np.cumsum([s.prompt_tokens + 4 * s.generated_tokens for s in steps])
        assert cell.cost_total[i] == total[-1]
        n = min(len(steps), 6)
        assert list(cell.cost[i, :n]) == list(total[:n])
    alone = lay_out(episodes, tasks, prices=Prices(0, 1))
    assert alone.cost_total.sum() == sum(s.generated_tokens for e in episodes for s in e.steps)
    timed = lay_out(episodes, tasks, prices=Prices(unit="microseconds"))
    assert timed.cost_total.dtype == np.int64
    assert timed.cost_total.min() > 10_000


def test_time_that_nobody_measured_is_no_cost(made):
    episodes, tasks = made
    blind = replace(episodes[0], steps=[replace(episodes[0].steps[0], engine_seconds=None)])
    with pytest.raises(UserError, match="no measured engine time"):
        lay_out([blind], tasks, prices=Prices(unit="microseconds"))


def test_a_rounds_text_ends_with_its_action(made):
    episodes, tasks = made
    cell = lay_out(episodes, tasks, dialect=made_rounds.MadeWorld.dialect)
    for texts in cell.texts:
        for r, text in enumerate(texts, 1):
            assert text.endswith(f"STEP {r} ACTION: get part {r}")
            assert text.count("OBSERVATION") == r - 1


def test_the_final_text_on_sql_lacks_the_result():
    task = made_episodes.made_tasks(4)[0]
    episode = made_episodes.made_episode(task)
    cell = cell_of([episode], {task["task_id"]: task}, {}, benchmark="made", agent="steady")
    last = cell.texts[0][-1].splitlines()[-1]
    assert last.startswith("FINAL_SQL:")


def test_ends_without_an_outcome_are_dropped_and_counted(made):
    episodes, tasks = made
    broken = [replace(e, end="engine_error") for e in episodes[:3]]
    cell = lay_out([*broken, *episodes[3:]], tasks)
    assert (len(cell), dict(cell.dropped)) == (27, {"engine_error": 3})


def test_episodes_that_a_monitor_ended_are_refused_unless_told(made):
    episodes, tasks = made
    stopped = [replace(episodes[0], end="stopped"), *episodes[1:]]
    with pytest.raises(UserError, match="1 stopped"):
        lay_out(stopped, tasks)
    assert lay_out(stopped, tasks, drop_stopped=True).dropped == {"stopped": 1}


def test_two_versions_of_an_agent_are_refused(made):
    episodes, tasks = made
    with pytest.raises(UserError, match="2 versions of the agent"):
        lay_out([replace(episodes[0], agent_hash="other"), *episodes[1:]], tasks)


def test_a_cell_without_any_outcome_is_refused(made):
    episodes, tasks = made
    with pytest.raises(UserError, match="no episode with an outcome"):
        lay_out([replace(e, end="env_error") for e in episodes], tasks)


def test_a_table_gives_the_cell_back(cell):
    table = to_table(cell)
    assert table.schema.names == SCHEMA.names
    again = from_table(table)
    for name in ("episode", "task", "group", "T", "cost", "cost_total", "surface"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cell, name))
    for name in ("success", "texts", "goal", "meta", "agent_hash", "dropped", "benchmark"):
        assert getattr(again, name) == getattr(cell, name)
    with pytest.raises(ValueError, match="not the rounds"):
        from_table(table.replace_schema_metadata({}))


def test_hidden_states_are_placed_by_episode_and_round(cell):
    bare = replace(cell, vectors=None, layer=None)
    one = bare.with_vectors({(cell.episode[2], 1): np.arange(16)}, 3)
    assert one.layer == 3
    assert list(one.vectors[2, 0]) == list(range(16))
    assert int((~np.isnan(one.vectors)).sum()) == 16
    with pytest.raises(UserError, match="no activations"):
        bare.with_vectors({}, 3)
