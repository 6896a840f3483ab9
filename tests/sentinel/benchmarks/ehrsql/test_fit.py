import sqlite3

import pytest
from made_ehrsql import impossible, record, write_database, write_questions

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql import EhrsqlBenchmark

CLOCK = "2105-12-31 23:59:00"


def small(tmp_path, records, clock=CLOCK, **settings):
    path = write_questions(tmp_path / "q.json", records)
    if not (tmp_path / "db.sqlite").exists():
        write_database(tmp_path / "db.sqlite")
    return EhrsqlBenchmark(
        questions=str(path),
        database=str(tmp_path / "db.sqlite"),
        clock=clock,
        version="1.5.1",
        **settings,
    )


@pytest.mark.parametrize(
    ("clock", "says"),
    [
        ("2100-12-31 23:59:00", "after the clock 2100"),
        ("2105-09-01 00:00:00", None),
        (CLOCK, None),
        ("2110-12-31 23:59:00", "more than a year before the clock 2110"),
    ],
)
def test_a_database_of_another_clock_is_refused(tmp_path, clock, says):
    benchmark = small(tmp_path, [record(3), impossible(4)], clock)
    if says is None:
        benchmark.prepare(tmp_path)
        return
    with pytest.raises(DataError, match=says) as refused:
        benchmark.prepare(tmp_path)
    assert "2105-09-01 00:00:00" in refused.value.cause  # the last admission
    assert "set clock" in refused.value.remedy


def test_times_that_sqlite_cannot_read_are_refused(tmp_path):
    benchmark = small(tmp_path, [record(3), impossible(4)])
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:
        connection.execute("update admissions set admittime = '2105/09/01'")
    with pytest.raises(DataError, match=r"'2105/09/01', which is no time to SQLite"):
        benchmark.prepare(tmp_path)


def test_gold_of_another_database_is_refused_with_its_id(tmp_path):
    strange = record(5, query="select drug from prescriptions", q_tag="another group")
    with pytest.raises(DataError, match=r"1 of 2 groups .*q0005: no such table: prescriptions"):
        small(tmp_path, [record(3), strange, impossible(4)]).prepare(tmp_path)
    vital = record(6, query="select count(*) > sao2_lower from admissions", q_tag="vital")
    small(tmp_path, [vital]).prepare(tmp_path)  # a placeholder is no column


def test_what_is_no_database_is_named(tmp_path):
    (tmp_path / "db.sqlite").write_text("something else entirely")
    with pytest.raises(DataError, match="is no database"):
        small(tmp_path, [record(3)]).prepare(tmp_path)


def test_a_database_without_stays_has_no_clock_to_check(tmp_path):
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:
        connection.execute("create table t (a)")
    connection.close()
    small(tmp_path, [record(3, query="select a from t")]).prepare(tmp_path)
