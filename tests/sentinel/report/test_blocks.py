"""Cells, footnotes and CSV text."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from sentinel.report import blocks
from sentinel.report.blocks import Cell, Data, Head, TableView


@given(st.lists(st.one_of(st.none(), st.text(), st.floats(allow_nan=False), st.integers())))
def test_csv_reads_back(values: list[object]) -> None:
    text = Data("x", ("a", "b"), [{"a": v, "b": "end"} for v in values]).to_csv()
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read[0] == ["a", "b"]
    for value, (cell, end) in zip(values, read[1:], strict=True):
        assert end == "end"
        if isinstance(value, float):
            assert float(cell) == value
        elif value is None:
            assert cell == ""
        elif isinstance(value, int):
            assert int(cell) == value
        else:
            assert cell == str(value)


def test_csv_has_no_nan_and_keeps_large_ids() -> None:
    text = Data("x", ("a",), [{"a": float("nan")}, {"a": 2**53 + 1}, {"a": "\ud800"}]).to_csv()
    assert text == 'a\n""\n9007199254740993\n\\ud800\n'


def test_undefined_cells_share_footnotes() -> None:
    rows = [{"a": None}, {"a": 0.5}, {"a": None}]
    heads = (
        Head("A", lambda r: blocks.number(r["a"], "no answers")),
        Head("B", lambda r: blocks.percent(r["a"], "nothing to divide")),
    )
    lines, notes = TableView(Data("x", ("a",), rows), "", heads).body()
    assert notes == [("a", "no answers"), ("b", "nothing to divide")]
    assert [mark for line in lines for _, mark in line] == ["a", "b", "", "", "a", "b"]
    assert lines[1][0][0] == Cell("0.500")


def test_a_column_that_never_varies_is_left_out() -> None:
    heads = (Head("B", blocks.text("b"), varied=True), Head("A", blocks.text("a")))
    one = TableView(Data("x", ("a", "b"), [{"a": 1, "b": 1}, {"a": 2, "b": 1}]), "", heads)
    two = TableView(Data("x", ("a", "b"), [{"a": 1, "b": 1}, {"a": 2, "b": 2}]), "", heads)
    assert [h.title for h in one.shown] == ["A"]
    assert [h.title for h in two.shown] == ["B", "A"]


def test_spans_of_headings() -> None:
    def head(group: str) -> Head:
        return Head("t", lambda r: "", group=group)

    view = TableView(Data("x", (), []), "", tuple(head(g) for g in ("", "", "G", "G", "H", "")))
    assert view.groups == [("", 1), ("", 1), ("G", 2), ("H", 1), ("", 1)]


def test_words_for_numbers() -> None:
    assert blocks.signed(-0.25, digits=2) == "−0.25"
    assert blocks.signed(0.0, digits=1) == "+0.0"
    assert blocks.span(-0.1, 0.2, 1) == "[−0.1, +0.2]"
    assert blocks.span(None, 0.2) == ""
    assert blocks.seconds(5.0) == "5.0 s"
    assert blocks.seconds(600.0) == "10.0 min"
    assert blocks.seconds(7200.0) == "2.0 h"
    assert blocks.visible("a\u202eb\ud800\x00") == "a\\u202eb\\ud800\\u0000"
