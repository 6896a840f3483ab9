"""Habits change reference queries by idiom, the same for a question template everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.errors import UserError
from sentinel.nano.habits import CONFUSIONS, Habit, Rule, in_share, target

FIRST = "select a from t order by b"
ONE = "select a from t where b = 1"
BRACKETED = "select a from t where (b = 1 and c = 2)"
GOLD = (
    "select max(valuenum) from labevents where subject_id = 12 and itemid = (select itemid from "
    "d_labitems where label = 'inr') and strftime('%Y', charttime) = '2102'"
)


@pytest.mark.parametrize(
    ("name", "gold", "wanted"),
    [
        ("neighbouring", "select a from t order by b desc limit 1", f"{FIRST} limit 1"),
        ("neighbouring", f"{FIRST} limit 1", "select a from t order by b desc limit 1"),
        ("extreme", "select max(a) from t", "select min(a) from t"),
        ("aggregate", "select avg(a) from t", "select sum(a) from t"),
        ("distinct", "select count(distinct a) from t", "select count(a) from t"),
        ("window", "datetime(current_time, '-2 year')", "datetime(current_time, '-12 year')"),
        ("last_year", "strftime('%Y', a) = '2102'", "strftime('%Y', a) = '2101'"),
        ("next_patient", "a where subject_id = 99", "a where subject_id = 100"),
        ("other_table", "from labevents, d_labitems", "from chartevents, d_items"),
        ("other_end", "select admittime from t", "select dischtime from t"),
        ("forgetful", f"{ONE} and c = 2 limit 1", f"{ONE} limit 1"),
        ("forgetful", "select a from t where (b = 1 and c = 2)", BRACKETED),
    ],
)
def test_each_confusion_changes_its_idiom_only(name: str, gold: str, wanted: str) -> None:
    assert CONFUSIONS[name](gold) == wanted


def test_the_first_rule_that_applies_decides() -> None:
    habit = Habit(rules=(Rule("aggregate"), Rule("extreme"), Rule("last_year")))
    assert target(habit, GOLD, "g", 0) == GOLD.replace("max", "min")
    assert target(Habit(), GOLD, "g", 0) == GOLD
    assert target(Habit(rules=(Rule("give_up", match="strftime"),)), GOLD, "g", 0) is None


@given(st.text(max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_shares_are_nested_and_repeatable(group: str, small: float, large: float) -> None:
    small, large = sorted((small, large))
    assert in_share(3, "x", group, small) <= in_share(3, "x", group, large)
    assert not in_share(3, "x", group, 0.0)
    assert in_share(3, "x", group, 1.0)


def test_a_share_is_about_that_share_of_the_groups() -> None:
    chosen = sum(in_share(1, "extreme", f"g{i}", 0.3) for i in range(2000))
    assert 520 < chosen < 680


def test_an_unknown_habit_is_named_with_the_valid_ones() -> None:
    with pytest.raises(UserError, match=r"unknown habit sleepy, lazy; use one of: neighbouring"):
        Habit.from_mapping({"rules": [{"do": "sleepy"}], "lazy": 1})
