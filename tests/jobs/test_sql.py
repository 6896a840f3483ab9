"""`sentinel sql`: typed JSON, the database's clock, the sandbox's limits."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from jobs import __main__ as cli
from jobs.sql import database_clock
from sentinel.errors import UserError

CLOCK = "2105-12-31 23:59:00"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "small #1.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("create table t(a, b); insert into t values (1, 'x'), (2.5, null);")
    connection.close()
    return path


def run(capsys, *args: str) -> tuple[int, list[dict]]:
    code = cli.main(["sql", *args])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_types_survive(database, capsys):
    code, (result,) = run(capsys, str(database), "select * from t order by a")
    assert code == 0
    assert result["columns"] == ["a", "b"]
    assert result["rows"] == [[1, "x"], [2.5, None]]


@pytest.mark.parametrize("side", [{"clock": CLOCK}, {"args": {"clock": CLOCK}}])
def test_now_is_the_clock_of_the_side_file(database, capsys, side):
    database.with_name(database.name + ".json").write_text(json.dumps(side))
    code, (result,) = run(capsys, str(database), "select datetime('now'), current_timestamp")
    assert code == 0
    assert result["rows"] == [[CLOCK, CLOCK]]


def test_the_option_goes_before_the_side_file(database, capsys):
    _, (result,) = run(capsys, str(database), "--clock", CLOCK, "select datetime('now')")
    assert result["rows"] == [[CLOCK]]


def test_one_line_per_query_and_exit_3_for_an_error(database, capsys):
    code, results = run(capsys, str(database), "delete from t", "select count(*) from t")
    assert code == 3
    assert results[0]["error"]
    assert results[1]["rows"] == [[2]]


@pytest.mark.parametrize("content", [None, b"this is no database, but it is long enough" * 40])
def test_no_database_is_one_line(tmp_path, capsys, content):
    path = tmp_path / "x.sqlite"
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["sql", str(path), "select 1"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "x.sqlite" in err


def test_a_damaged_side_file_is_named(database):
    side = database.with_name(database.name + ".json")
    side.write_text("{")
    with pytest.raises(UserError, match="cannot read"):
        database_clock(database)
    side.write_text("[]")
    with pytest.raises(UserError, match="names no clock"):
        database_clock(database)


def test_without_a_side_file_now_is_now(database):
    assert database_clock(database) > "2024-01-01 00:00:00"
