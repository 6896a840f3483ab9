"""The two official scorers and typed equivalence, and where they disagree."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.sql.compare import (
    SCORER_VERSION,
    SCORERS,
    canonical,
    equal_strict_2022,
    equal_strict_2024,
    equal_typed,
)
from sentinel.sql.result import Result, Value


def table(*rows: tuple[Value, ...], truncated: bool = False) -> Result:
    width = len(rows[0]) if rows else 1
    return Result(tuple(f"c{i}" for i in range(width)), rows, truncated=truncated)


def column(*values: Value) -> Result:
    return table(*((v,) for v in values))


def verdicts(gold: Result, answer: Result) -> tuple[bool, bool, bool]:
    return (
        equal_strict_2022(gold, answer),
        equal_strict_2024(gold, answer),
        equal_typed(gold, answer, ordered=False),
    )


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (column(1), column(1), (True, True, True)),
        (column(1), column(1.0), (False, True, True)),
        (column(1), column("1"), (False, True, False)),
        (column("00123"), column("123"), (False, True, False)),
        (column(0.1 + 0.2), column(0.3), (False, True, True)),
        (column(1.0004), column(1.0), (False, True, False)),
        (column(None), column("None"), (False, True, False)),
        (column(None), column("NULL"), (False, False, False)),
        (column(None), column(""), (False, False, False)),
        (column(None), column(None), (True, True, True)),
        (column("a", "b"), column("b", "a"), (True, True, True)),
        (column(1, 1, 2), column(1, 2, 2), (False, False, False)),
        (column(1, 2), column(1, 2, 2), (False, False, False)),
        (column(), column(), (True, True, True)),
        (column(), column(None), (False, False, False)),
        (column("2105-12-31"), column("2105-12-31 00:00:00"), (False, False, True)),
        (column("2105-12-31T10:00"), column("2105-12-31 10:00:00.000"), (False, False, True)),
        (column("2100-02-29"), column("2100-02-29 00:00:00"), (False, False, False)),
        (column("2105-12"), column("2105-12-01"), (False, False, False)),
        (column(0.0), column(-0.0), (False, False, True)),
        (column(float("inf")), column(float("inf")), (True, True, True)),
        (column(float("inf")), column(float("-inf")), (False, False, False)),
        (column(2**63 - 1), column(2**63 - 2), (False, True, False)),
        (column(2**53), column(float(2**53)), (False, True, True)),
        (column(b"\x01"), column("\x01"), (False, False, False)),
        (column(b"ab"), column(b"ab"), (True, True, True)),
        (table((1, "a")), table(("a", 1)), (False, False, True)),
        (table((1, 2), (2, 1)), table((1, 2), (2, 1)), (True, True, True)),
        # Each row alone is a permutation; no one permutation serves both.
        (table((1, 2), (3, 4)), table((1, 2), (4, 3)), (False, False, False)),
        (table((1, 2), (1, 2)), table((1, 2), (2, 1)), (False, False, False)),
        (table((1, 1, 2)), table((1, 2, 2)), (False, False, False)),
        (table((1, 2)), column(1), (False, False, False)),
    ],
)
def test_verdicts(gold: Result, answer: Result, expected: tuple[bool, bool, bool]) -> None:
    assert verdicts(gold, answer) == expected
    assert verdicts(answer, gold) == expected


def test_a_failure_equals_nothing() -> None:
    failed = Result(error="no such column: x")
    for other in (failed, Result(error="timeout"), Result(("a",)), column(None), column("error")):
        assert verdicts(failed, other) == (False, False, False)
        assert verdicts(other, failed) == (False, False, False)


def test_the_2022_scorer_cuts_before_it_sorts_and_the_2024_scorer_after() -> None:
    up, down = column(*range(1000, 1150)), column(*range(1149, 999, -1))
    assert not equal_strict_2022(up, down)
    assert equal_strict_2024(up, down)
    same_head = column(*range(1000, 1100), *range(5000, 5050))
    assert equal_strict_2022(up, same_head)
    assert equal_strict_2024(up, same_head)  # both agree in the first 100 after sorting too
    assert not equal_typed(up, same_head, ordered=False)
    later = column(*range(1000, 1100), *range(10, 20))
    assert equal_strict_2022(up, later)
    assert not equal_strict_2024(up, later)


def test_a_cut_result_is_equal_only_where_enough_is_there() -> None:
    rows = [(i,) for i in range(200)]
    cut, whole = table(*rows[:150], truncated=True), table(*rows)
    assert equal_strict_2022(whole, cut)
    assert not equal_strict_2024(whole, cut)
    assert not equal_typed(cut, cut, ordered=False)
    assert not equal_strict_2022(table(*rows[:50], truncated=True), table(*rows[:50]))


def test_order_counts_only_when_asked() -> None:
    a, b = table((1, "x"), (2, "y")), table(("y", 2), ("x", 1))
    assert equal_typed(a, b, ordered=False)
    assert not equal_typed(a, b, ordered=True)
    assert equal_typed(a, table(("x", 1), ("y", 2)), ordered=True)


def test_ties_and_identical_columns_under_order() -> None:
    a = table((1, 1, "x"), (1, 1, "y"))
    assert equal_typed(a, table(("x", 1, 1), ("y", 1, 1)), ordered=True)
    assert not equal_typed(a, table(("y", 1, 1), ("x", 1, 1)), ordered=True)
    assert equal_typed(a, table(("y", 1, 1), ("x", 1, 1)), ordered=False)


VALUES = st.sampled_from(
    [None, 0, 1, 1.0, 2, "1", "", "2105-01-01", "2105-01-01 00:00:00", b"\x01"]
)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=0, max_size=5)
)


def brute_force(left: Result, right: Result) -> bool:
    if left.n_cols != right.n_cols or left.n_rows != right.n_rows:
        return False
    wanted = Counter(tuple(map(canonical, row)) for row in left.rows)
    return any(
        wanted == Counter(tuple(canonical(row[i]) for i in order) for row in right.rows)
        for order in itertools.permutations(range(right.n_cols))
    )


@given(TABLES, TABLES, st.randoms(use_true_random=False))
def test_typed_equivalence_agrees_with_every_permutation(
    left: list[tuple[Value, ...]], right: list[tuple[Value, ...]], rng: random.Random
) -> None:
    a, b = table(*left), table(*right)
    assert equal_typed(a, b, ordered=False) == brute_force(a, b)
    if left:
        order = list(range(len(left[0])))
        rng.shuffle(order)
        shuffled = [tuple(row[i] for i in order) for row in left]
        rng.shuffle(shuffled)
        assert equal_typed(a, table(*shuffled), ordered=False)
        assert equal_typed(a, table(*(tuple(r[i] for i in order) for r in left)), ordered=True)


@given(TABLES, TABLES)
def test_every_scorer_is_symmetric_and_reflexive(
    left: list[tuple[Value, ...]], right: list[tuple[Value, ...]]
) -> None:
    a, b = table(*left), table(*right)
    assert verdicts(a, b) == verdicts(b, a)
    assert verdicts(a, a) == (True, True, True)
    if equal_typed(a, b, ordered=True):
        assert equal_typed(a, b, ordered=False)


def test_many_alike_columns_are_compared_in_bounded_time() -> None:
    rng = random.Random(0)
    bits = [tuple(rng.sample([0] * 10 + [1] * 10, 20)) for _ in range(12)]
    rows = list(zip(*bits, strict=True))
    order = rng.sample(range(12), 12)
    shuffled = [tuple(row[i] for i in order) for row in rng.sample(rows, 20)]
    assert equal_typed(table(*rows), table(*shuffled), ordered=False)
    wide = [tuple(rng.randrange(10**6) for _ in range(60)) for _ in range(500)]
    assert equal_typed(table(*wide), table(*(tuple(reversed(r)) for r in wide)), ordered=False)


def as_2022(result: Result) -> str:
    """The 2022 script's text of a result; it compares two of them."""
    return str(sorted([str(row) for row in result.rows[:100]]))


def as_2024(result: Result) -> str:
    """The 2024 scoring program's."""

    def item(value: Value) -> str:
        try:
            return str(round(float(value), 3))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return str(value)

    return str(sorted([[item(value) for value in row] for row in result.rows])[:100])


@given(TABLES, TABLES, st.sampled_from([1, 60, 99, 100, 101]))
def test_the_strict_scorers_are_the_published_texts(
    left: list[tuple[Value, ...]], right: list[tuple[Value, ...]], times: int
) -> None:
    a, b = table(*left * times), table(*right * times)
    for gold, answer in ((a, b), (a, table(*reversed(a.rows))), (a, a)):
        assert equal_strict_2022(gold, answer) == (as_2022(gold) == as_2022(answer))
        assert equal_strict_2024(gold, answer) == (as_2024(gold) == as_2024(answer))


def test_a_third_decimal_decides_for_the_2024_scorer_alone() -> None:
    gold = column(0.5, 1.2344)
    assert verdicts(gold, column(1.2341, 0.5)) == (False, True, False)
    assert verdicts(gold, column(1.2346, 0.5)) == (False, False, False)
    assert verdicts(column(5), column("5.0004")) == (False, True, False)


def test_scorers_are_named_and_versioned() -> None:
    assert set(SCORERS) == {"strict-2022", "strict-2024", "typed"}
    assert SCORER_VERSION
