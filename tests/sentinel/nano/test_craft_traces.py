"""Traces of crafting agents: right without habits, wrong in the named way with them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.agent.react import parse
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.craft import CraftBenchmark
from sentinel.benchmarks.craft.rules import apply
from sentinel.errors import UserError
from sentinel.nano.craft import CAP, DIALECT, FAULTS, CraftHabit, make_traces, neighbour, plan_of
from sentinel.nano.traces import Trace

CRAFT = CraftBenchmark()
BOOK = CRAFT.world.book
TASKS = CRAFT.agent_questions(3, 120)


def traces(rules: Sequence[dict[str, object]] = (), **habit: object) -> list[Trace]:
    mapping = {"rules": [dict(r) for r in rules], **habit}
    return list(make_traces(TASKS, CraftHabit.from_mapping(mapping), BOOK, seed=5))


def replayed(task: Task, trace: Trace) -> bool:
    """Carry the trace's actions out again; what it was told must be what happens."""
    inventory, made, told = {}, 0, [task.text]
    for text in trace.wrote:
        action = parse(text, DIALECT)
        assert (action.kind, action.forgiven) == ("act", ())
        outcome = apply(BOOK, inventory, action.text)
        inventory = dict(outcome.inventory)
        if outcome.crafted is not None and outcome.crafted.name == task.meta["goal"]:
            made += outcome.crafted.count
        told.append(f"OBSERVATION: {outcome.text}")
    assert trace.told == tuple(told[:-1])
    return made >= task.meta["count"]


def test_without_habits_every_trace_succeeds_in_the_order_of_its_plan() -> None:
    for task, trace in zip(TASKS, traces(), strict=True):
        assert replayed(task, trace)
        backward = plan_of(task) == "later"
        assert list(trace.wrote) == [f"ACTION: {c}" for c in CRAFT.oracle(task, backward=backward)]
    assert {plan_of(t) for t in TASKS} == {"first", "later"}


@pytest.mark.parametrize("fault", ["short", "similar", "skip"])
@pytest.mark.parametrize("stuck", ["repeat", "inventory"])
def test_a_fatal_fault_fails_under_its_plan_only(fault: str, stuck: str) -> None:
    made = traces([{"do": fault, "when": "first"}], stuck=stuck, tail=3)
    for task, right, trace in zip(TASKS, traces(), made, strict=True):
        if plan_of(task) == "later":
            assert trace == right
            continue
        assert not replayed(task, trace)
        errors = [t.startswith("OBSERVATION: error") for t in trace.told[1:]]
        assert any(errors)
        assert not any(errors[: errors.index(True)])  # nothing shows before
        assert len(trace.wrote) <= CAP


def test_an_early_try_costs_one_turn_and_nothing_else() -> None:
    for task, right, trace in zip(TASKS, traces(), traces([{"do": "early"}]), strict=True):
        assert replayed(task, trace)
        assert trace.wrote[1:] == right.wrote
        assert trace.told[1].startswith("OBSERVATION: error: not enough items")


def test_shares_are_of_groups_and_chances_of_episodes() -> None:
    share = [a != b for a, b in zip(traces([{"do": "skip", "share": 0.5}]), traces(), strict=True)]
    by_group: dict[str, set[bool]] = {}
    for task, changed in zip(TASKS, share, strict=True):
        by_group.setdefault(task.group, set()).add(changed)
    assert all(len(found) == 1 for found in by_group.values())
    assert 0.25 < sum(True in f for f in by_group.values()) / len(by_group) < 0.75
    chance = traces([{"do": "skip", "chance": 0.5}])
    assert 30 < sum(a != b for a, b in zip(chance, traces(), strict=True)) < 90
    assert chance == traces([{"do": "skip", "chance": 0.5}])


@settings(max_examples=40)
@given(st.sampled_from(sorted(FAULTS)), st.integers(0, len(TASKS) - 1), st.sampled_from([0, -1]))
def test_faults_leave_a_plan_that_ends_with_its_goal(fault: str, i: int, at: int) -> None:
    commands = CRAFT.oracle(TASKS[i])
    changed = FAULTS[fault](list(commands), BOOK, at)
    assert changed != commands
    assert changed[-1] == commands[-1]


def test_neighbours_are_other_items_of_the_same_kind() -> None:
    basic = [i for i in BOOK.items if i not in BOOK.makes]
    for item in basic:
        other = neighbour(item, BOOK)
        assert other != item
        assert other in basic
    assert neighbour("oak log", BOOK) == "pine log"


@pytest.mark.parametrize(
    "habit",
    [{"rules": [{"do": "sing"}]}, {"rules": [{"do": "skip", "when": "never"}]}, {"stuck": "cry"},
     {"mood": 1}, {"rules": [{"do": "skip", "how": 1}]}],
)  # fmt: skip
def test_unknown_habits_are_refused(habit: dict[str, object]) -> None:
    with pytest.raises(UserError, match="habit"):
        CraftHabit.from_mapping(habit)
