"""Sheets of the audit: out, through a spreadsheet, and back; each fault is one line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import pytest

from sentinel.errors import UserError
from sentinel.judge.prompt import JudgePrompt
from sentinel.judge.sheet import AuditCase, case_name, draw, read_sheet, sections, write_sheet
from sentinel.sql.result import Result

KEYS = [f"{i}e{i:062x}" for i in range(5)]
NAMES = [case_name(key) for key in KEYS]
GOLD, ANSWER = Result(("n",), ((3,),)), Result(("a", "b"), (('x,\n"y"; z', None), ("<b>", 1.5)))


def sheet(question: str = "how many; and, why?") -> str:
    shown = JudgePrompt().user(question, GOLD, ANSWER)
    return write_sheet([AuditCase(name, shown) for name in NAMES])


def filled(delimiter: str = ",", verdicts: Sequence[str] = "10110") -> str:
    rows = list(csv.reader(io.StringIO(sheet(), newline="")))
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(rows[0])
    writer.writerows([*row[:-1], v] for row, v in zip(rows[1:], verdicts, strict=True))
    return out.getvalue()


def test_a_sheet_says_what_the_judge_was_shown_and_not_what_it_said() -> None:
    rows = list(csv.DictReader(io.StringIO(sheet(), newline="")))
    assert [row["case"] for row in rows] == NAMES
    assert {row["verdict"] for row in rows} == {""}
    assert rows[0]["question"] == "how many; and, why?"
    assert rows[0]["gold_result"] == "1 rows x 1 cols ('n')\n[3]"
    assert rows[0]["answer_result"].startswith(
        "2 rows x 2 cols ('a', 'b')\n['x,\\n\"y\"; z', NULL]\n"
    )
    assert "One digit" not in sheet()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_filled_sheet_is_read_as_spreadsheets_save_it(delimiter: str) -> None:
    expected = dict(zip(NAMES, [True, False, True, True, False], strict=True))
    text = filled(delimiter)
    assert read_sheet(text, NAMES, "s.csv") == expected
    assert read_sheet("\ufeff" + text.replace("\r\n", "\n"), NAMES, "s.csv") == expected


def test_other_columns_and_another_order_are_read() -> None:
    text = "note,Verdict, CASE \n" + "".join(f"x,1.0,{name}\n\n" for name in reversed(NAMES))
    assert read_sheet(text, NAMES, "s.csv") == dict.fromkeys(NAMES, True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "needs one column named 'case'"),
        ("case,answer\n", "needs one column named 'verdict'"),
        ("case,verdict,verdict\n", "needs one column named 'verdict'"),
        (filled(verdicts=("1", "0", "", "1", "0")), "case-2e0000000000 has verdict '', not 1 or 0"),
        (filled(verdicts=("1", "0", "2", "1", "0")), "has verdict '2', not 1 or 0"),
        (filled(verdicts=("1", "yes", "1", "1", "0")), "has verdict 'yes'"),
        (f"case,verdict\n{NAMES[0]},1\n{NAMES[0]},1\n", "stands there twice"),
        ("case,verdict\ncase-zzz,1\n", "no case 'case-zzz' was exported"),
        (f"case,verdict\n{NAMES[0]},1\n", "lacks 4 of 5 cases"),
        (f"case,verdict\n{NAMES[0]}\n", "has verdict ''"),
        ("case,verdict\n" + "x" * 200_000 + ",1\n", "no CSV file"),
        ("<html>\n<b>", "needs one column"),
    ],
)
def test_a_fault_is_one_line_that_names_the_place(text: str, fault: str) -> None:
    with pytest.raises(UserError) as told:
        read_sheet(text, NAMES, "s.csv")
    assert fault in str(told.value)
    assert str(told.value).startswith("s.csv")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("question", ["=1+1", "+1", "-1", "@x", "=cmd|' /C calc'!A0"])
def test_no_cell_begins_like_a_formula(question: str) -> None:
    for row in csv.reader(io.StringIO(sheet(question), newline="")):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)


def test_the_draw_is_seeded_and_takes_each_content_once() -> None:
    many = [f"{i:064x}" for i in range(500)]
    first = draw(many, 100, 42)
    assert first == draw(list(reversed(many)) + many, 100, 42)
    assert len(set(first)) == 100
    assert first != draw(many, 100, 43)
    assert draw(many[:7], 100, 42) == many[:7]


def test_names_are_words_to_a_spreadsheet() -> None:
    assert case_name("1e5" + "0" * 61) == "case-1e5000000000"


def test_sections_of_a_message() -> None:
    parts = sections(JudgePrompt().user("q", GOLD, Result(("n",))))
    assert parts == ("q", "1 rows x 1 cols ('n')\n[3]", "empty (0 rows)")
