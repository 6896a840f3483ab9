"""The lexer tells code from literals, quoted names and comments."""

from __future__ import annotations

import pytest

from sentinel.sql.lexer import strip_terminators, tokens


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("select 1;", "select 1"),
        ("select 1 ;; -- x", "select 1 "),
        ("select 1 ; /* a ; */ ;", "select 1 "),
        ("select ';'", "select ';'"),
        ('select ";", [;], `;` -- ;', 'select ";", [;], `;` -- ;'),
        ("select 1; select 2;", "select 1; select 2"),
        ("select 1 -- ;\n;", "select 1 -- ;\n"),
        (";", ";"),
        (";;select 1;", ";;select 1"),
        ("select ';", "select ';"),
        ("select 1 /* ; ", "select 1 /* ; "),
        ("select 'it''s;';", "select 'it''s;'"),
    ],
)
def test_only_what_follows_the_statement_goes(sql: str, kept: str) -> None:
    assert strip_terminators(sql) == kept


def test_kinds() -> None:
    sql = "sel_1 'a''b' x'00' \"q\"\"\" [b] `c` 1.5e3 0x1F .5 -- c\n/* d */ ;+é$1"
    kinds = [(t.kind, t.text) for t in tokens(sql) if not t.ignored]
    assert kinds == [
        ("word", "sel_1"), ("string", "'a''b'"), ("string", "x'00'"), ("quoted", '"q"""'),
        ("quoted", "[b]"), ("quoted", "`c`"), ("number", "1.5e3"), ("number", "0x1F"),
        ("number", ".5"), ("end", ";"), ("other", "+"), ("word", "é$1"),
    ]  # fmt: skip


def test_a_long_unterminated_literal_is_read_in_linear_time() -> None:
    for text in ("'" * 99_999, "'" + "a" * 100_000, "/*" * 50_000, "a" * 100_000, "((((" * 25_000):
        assert "".join(t.text for t in tokens(text)) == text
