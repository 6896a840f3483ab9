"""Which strict verdicts go to the judge, and what its word becomes."""

from __future__ import annotations

from typing import Any

import pytest

from sentinel.errors import UserError
from sentinel.judge.rules import Opinion, is_asked, label_row
from sentinel.labels import SQL_LABELS, Gold, judge, label_rows, verdict_pairs
from sentinel.sql.result import Result
from sentinel.tables import LABELS

LABEL = "judge:m:01234567"
GOLD = Gold(Result(("n",), ((3,),)))


def strict(end: str, answer: Any, answerable: bool, gold: Gold = GOLD) -> dict[str, Any]:
    from types import SimpleNamespace

    episode = SimpleNamespace(
        benchmark="b", agent="a", episode_id="e", task_id="q", end=end, success=None,
        answer=None if answer is None else Result(("n",), ((answer,),)).to_json(),
    )  # fmt: skip
    (row,) = label_rows([episode], {"q": answerable}, {"q": gold}, ("strict-2022",))
    return row


FAILED = Gold(Result(error="no such table: x"))


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        (strict("answered", 4, True), True),
        (strict("answered", 3.0, True), True),  # right to people, wrong to the strict scorer
        (strict("answered", 3, True), False),
        (strict("answered", 4, False), False),
        (strict("answered", None, True), False),  # a query that raised is wrong
        (strict("answered", None, False), False),
        (strict("abstained", None, True), False),
        (strict("abstained", None, False), False),
        (strict("cap", None, True), False),
        (strict("engine_error", None, True), False),
        (strict("answered", 4, True, FAILED), False),
    ],
)
def test_who_is_asked(row: dict[str, Any], asked: bool) -> None:
    assert is_asked(row) is asked
    if not asked:
        kept = label_row(LABEL, row, None)
        same = ("correct", "source", "error", "episode_id")
        assert [kept[k] for k in same] == [row[k] for k in same]
        assert kept["label"] == LABEL
        with pytest.raises(ValueError, match="disagree"):
            label_row(LABEL, row, Opinion(True))
        return
    right = label_row(LABEL, row, Opinion(True))
    assert (right["correct"], right["source"]) == (True, "judge")
    assert "strict-2022" in right["version"]
    none = label_row(LABEL, row, Opinion(None, "no reply"))
    assert (none["correct"], none["source"], none["error"]) == (None, "unjudged", "no reply")
    with pytest.raises(ValueError, match="disagree"):
        label_row(LABEL, row, None)


def test_pairs_of_strict_and_semantic_verdicts() -> None:
    wrong, right = strict("answered", 4, True), strict("answered", 3, True) | {"episode_id": "f"}
    rows = [wrong, right, label_row(LABEL, wrong, Opinion(True)), label_row(LABEL, right, None)]
    pairs = verdict_pairs(LABELS.from_rows(rows))
    assert {e: (p.strict, p.semantic) for e, p in pairs.items()} == {
        "e": (False, True),
        "f": (True, True),
    }
    with pytest.raises(UserError, match="no judge's label"):
        verdict_pairs(LABELS.from_rows([wrong, right | {"label": "typed"}]))
    two = [*rows, label_row("judge:n:0", wrong, Opinion(False))]
    with pytest.raises(UserError, match="several judges"):
        verdict_pairs(LABELS.from_rows(two))
    assert verdict_pairs(LABELS.from_rows(two), semantic="judge:n:0")["e"].semantic is False
    with pytest.raises(UserError, match=r"no label 'strict-2024'"):
        verdict_pairs(LABELS.from_rows(rows), strict="strict-2024")


def test_typed_is_never_called_semantic() -> None:
    assert "semantic" not in SQL_LABELS
    with pytest.raises(ValueError, match="unknown label"):
        judge("semantic", None, True, GOLD)
