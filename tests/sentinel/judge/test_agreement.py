"""κ, confusion and Wilson's interval against numbers worked by hand and their laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.judge.agreement import audit, cohen_kappa, confusion, wilson


def test_kappa_of_a_table_worked_by_hand() -> None:
    # 20 both right, 15 both wrong, 5 and 10 apart: observed 0.7, by chance 0.5.
    first = [True] * 20 + [True] * 5 + [False] * 10 + [False] * 15
    second = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


def test_kappa_where_it_is_undefined_or_extreme() -> None:
    assert cohen_kappa([], []) is None
    assert cohen_kappa([True] * 9, [True] * 9) is None
    assert cohen_kappa([True] * 9, [True] * 8 + [False]) == pytest.approx(0.0)
    assert cohen_kappa([True, False], [True, False]) == 1.0
    assert cohen_kappa([True, False], [False, True]) == -1.0
    with pytest.raises(ValueError, match="different cases"):
        cohen_kappa([True], [])


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (1, 1), (92, 97), (50, 100)])
def test_wilson_is_the_formula(k: int, n: int) -> None:
    z, p = 1.959963984540054, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert wilson(k, n) == pytest.approx((middle - half, middle + half), abs=1e-12)
    assert wilson(0, 0) is None


VERDICTS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=30)


@given(VERDICTS)
def test_the_audit_counts_every_case_once(rows: list[tuple[bool, bool, bool]]) -> None:
    judge, first, second = ({f"c{i}": row[k] for i, row in enumerate(rows)} for k in range(3))
    found = audit(judge, first, second)
    assert found["cases"] == len(rows)
    assert sum(found["confusion"].values()) == len(rows) - found["disputed"]
    agreement, table = found["agreement"], found["confusion"]
    same = table["judge_right_human_right"] + table["judge_wrong_human_wrong"]
    assert (agreement["agreed"], agreement["n"]) == (same, len(rows) - found["disputed"])
    if agreement["n"]:
        assert 0 <= agreement["low"] <= agreement["share"] <= agreement["high"] <= 1
    else:
        assert agreement["low"] is agreement["share"] is None
    assert [r["n"] for r in found["raters"]] == [len(rows)] * 2


def test_confusion_names_who_said_what() -> None:
    counts = confusion([True, True, False, False, False], [True, False, True, False, False])
    assert counts == {
        "judge_right_human_right": 1,
        "judge_right_human_wrong": 1,
        "judge_wrong_human_right": 1,
        "judge_wrong_human_wrong": 2,
    }
    with pytest.raises(ValueError, match="different cases"):
        audit({"a": True}, {"a": True}, {"b": True})
