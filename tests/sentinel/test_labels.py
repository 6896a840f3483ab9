from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sentinel.labels import SQL_LABELS, SUCCESS, Gold, is_ordered, judge, label_rows
from sentinel.sql.compare import SCORER_VERSION
from sentinel.sql.result import Result
from sentinel.tables import ENDS, LABELS, OUTCOME_ENDS

GOLD = Gold(Result(("n",), ((3,), (4,))))


def episode(end: str = "answered", rows: Any = ((3,), (4,)), **values: Any) -> SimpleNamespace:
    answer = None if rows is None else Result(("x",), rows).to_json()
    content = {"end": end, "answer": answer, "success": None, "task_id": "q"} | values
    return SimpleNamespace(benchmark="b", agent="a", episode_id="b/a/q/0", **content)


@pytest.mark.parametrize("label", SQL_LABELS)
@pytest.mark.parametrize(
    ("given", "answerable", "correct", "source"),
    [
        (episode(), True, True, "match"),
        (episode(rows=((3,), (5,))), True, False, "mismatch"),
        (episode(rows=((3,), (4,), (4,))), True, False, "mismatch"),  # duplicates count
        (episode(), False, False, "unanswerable"),  # wrong whatever it says
        (episode(rows=None), True, False, "failed-answer"),
        (episode(rows=None), False, False, "unanswerable"),
        (episode("abstained", None), True, False, "abstained"),
        (episode("abstained", None), False, True, "abstained"),
        (episode("cap", None), True, False, "cap"),
        (episode("cap", None), False, True, "cap"),  # scored as an abstention, with its own name
        (episode(answer="{}"), True, None, "unreadable-answer"),
        (episode(), None, None, "no-reference"),
    ],
)
def test_policy(label: str, given: Any, answerable: Any, correct: Any, source: str) -> None:
    verdict = judge(label, given, answerable, GOLD)
    assert (verdict.correct, verdict.source) == (correct, source)
    assert (verdict.error is not None) == (correct is None)


def test_order_counts_only_where_the_reference_orders() -> None:
    turned = episode(rows=((4,), (3,)))
    assert judge("typed", turned, True, GOLD).correct is True
    assert judge("typed", turned, True, Gold(GOLD.result, ordered=True)).correct is False


def test_types_are_compared_as_each_label_says() -> None:
    texts = episode(rows=(("3",), ("4",)))
    assert judge("typed", texts, True, GOLD).correct is not None
    floats = episode(rows=((3.0,), (4.0,)))
    assert judge("typed", floats, True, GOLD).correct is True
    assert judge("strict-2022", floats, True, GOLD).correct is False


@pytest.mark.parametrize("end", sorted(set(ENDS) - set(OUTCOME_ENDS)))
@pytest.mark.parametrize("label", [*SQL_LABELS, SUCCESS])
def test_without_an_outcome_there_is_no_verdict(end: str, label: str) -> None:
    verdict = judge(label, episode(end, success=True), True, GOLD)
    assert verdict.correct is None
    assert end in str(verdict.error)


def test_a_reference_that_fails_gives_no_verdict_and_equals_no_failure() -> None:
    broken = Gold(Result(error="no such column: x"))
    assert judge("typed", episode(), True, broken).correct is None
    assert judge("typed", episode(), True, broken).error == "no such column: x"
    assert judge("typed", episode(rows=None), True, broken).correct is False
    assert judge("typed", episode("abstained", None), True, broken).correct is False


def test_success_is_the_environment_s_word_and_nothing_else() -> None:
    assert judge(SUCCESS, episode("cap", None, success=True), None, None).correct is True
    assert judge(SUCCESS, episode(success=False), None, None).correct is False
    assert judge(SUCCESS, episode(), None, None).correct is None


def test_unknown_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="semantic"):
        judge("semantic", episode(), True, GOLD)


def test_rows_fit_the_table() -> None:
    rows = label_rows([episode(success=True)], {"q": True}, {"q": GOLD}, (*SQL_LABELS, SUCCESS))
    table = LABELS.from_rows(rows)
    assert table["correct"].to_pylist() == [True] * 4
    assert table["label"].to_pylist() == [*SQL_LABELS, SUCCESS]
    versions = table["version"].to_pylist()
    assert versions == [SCORER_VERSION] * 3 + ["environment"], "every verdict names its scorer"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("SELECT max(a) OVER (ORDER BY b) FROM t", False),
        ("SELECT 'order by' FROM t", False),
        ("nonsense order by", False),
        ("SELECT " + "(" * 3000, False),
    ],
)
def test_is_ordered(sql: str, expected: bool) -> None:
    assert is_ordered(sql) is expected
