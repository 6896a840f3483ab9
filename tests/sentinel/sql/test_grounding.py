"""References and join predicates, worked by hand; SQLite itself is the judge of names."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.errors import UserError
from sentinel.sql.grounding import ground, parse_query
from sentinel.sql.schema import Schema

DDL = """
CREATE TABLE patients (row_id INTEGER PRIMARY KEY, subject_id INT UNIQUE, gender TEXT, dob TEXT);
CREATE TABLE admissions (row_id INTEGER PRIMARY KEY, subject_id INT REFERENCES patients(subject_id),
  hadm_id INT UNIQUE, admittime TEXT, "weird name" TEXT);
CREATE TABLE d_items (itemid INTEGER PRIMARY KEY, label TEXT);
CREATE TABLE chartevents (subject_id INT, hadm_id INT REFERENCES admissions(hadm_id),
  itemid INT REFERENCES d_items, charttime TEXT, valuenum REAL);
CREATE TABLE prescriptions (subject_id INT, hadm_id INT, drug TEXT,
  FOREIGN KEY (hadm_id) REFERENCES admissions(hadm_id));
CREATE VIEW adults AS SELECT subject_id AS sid, gender FROM patients;
CREATE VIEW ids AS SELECT subject_id FROM patients;
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("db") / "odd #name?%20.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(DDL)
    connection.close()
    return path


@pytest.fixture(scope="module")
def schema(database: Path) -> Schema:
    return Schema.read(database)


@pytest.fixture(scope="module")
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(database)
    yield opened
    opened.close()


# (query, failed references, bad joins)
CASES = [
    # plain names, aliases, stars
    ("SELECT gender FROM patients", 0, 0),
    ("SELECT sex FROM patients", 1, 0),
    ("SELECT GENDER FROM PATIENTS AS P WHERE p.Dob > 1", 0, 0),
    ("SELECT p.sex, p.age FROM patients p", 2, 0),
    ("SELECT patients.gender FROM patients p", 1, 0),  # an alias hides the table's name
    ("SELECT q.gender FROM patients p", 1, 0),
    ("SELECT p.* FROM patients p", 0, 0),
    ("SELECT q.* FROM patients p", 1, 0),
    ("SELECT main.patients.gender FROM main.patients", 0, 0),
    ("SELECT gender FROM hospital.patients", 1, 0),
    # unknown tables: one failure, its columns are unsure
    ("SELECT x, y FROM diagnoses", 1, 0),
    ("SELECT d.x, p.gender, p.sex FROM diagnoses d JOIN patients p ON d.k = p.subject_id", 2, 0),
    # quoted names
    ('SELECT "weird name", [weird name], `weird name` FROM admissions', 0, 0),
    ("SELECT [no such], `nor this` FROM admissions", 2, 0),
    ('SELECT a."no such" FROM admissions a', 1, 0),
    ('SELECT gender FROM patients WHERE gender = "m"', 0, 0),  # SQLite: a string
    ('SELECT "gender" FROM "patients"', 0, 0),
    # aliases of the select list
    ("SELECT count(*) AS n FROM patients GROUP BY gender HAVING n > 1 ORDER BY n", 0, 0),
    ("SELECT subject_id + 1 AS a, a * 2 FROM patients", 1, 0),
    ("SELECT subject_id AS a FROM patients WHERE a > 1 AND b > 1", 1, 0),
    # what is not in the schema but exists
    ("SELECT rowid, oid, p._rowid_ FROM patients p", 0, 0),
    ("SELECT name FROM sqlite_master WHERE type = 'table'", 0, 0),
    ("SELECT value FROM json_each('[1]')", 0, 0),
    ("SELECT j.value FROM patients p, json_each(p.dob) j", 0, 0),
    ("SELECT name FROM pragma_table_info('patients')", 0, 0),
    ("SELECT sid FROM adults", 0, 0),
    ("SELECT dob FROM adults", 1, 0),
    # subqueries and correlation
    ("SELECT s FROM (SELECT subject_id AS s FROM patients)", 0, 0),
    ("SELECT subject_id FROM (SELECT subject_id AS s FROM patients)", 1, 0),
    ("SELECT t.n FROM (SELECT count(*) AS n, max(dob) FROM patients) t", 0, 0),
    ("SELECT t.[max(dob)] FROM (SELECT max(dob) FROM patients) t", 0, 0),  # unsure
    ("SELECT t.x FROM (SELECT * FROM patients) t", 1, 0),
    ("SELECT 1 FROM patients p WHERE EXISTS (SELECT 1 FROM admissions WHERE gender = 'f')", 0, 0),
    ("SELECT 1 FROM patients p WHERE EXISTS (SELECT 1 FROM admissions WHERE p.hadm_id = 1)", 1, 0),
    ("SELECT (SELECT max(no) FROM admissions a WHERE a.subject_id = p.subject_id) FROM patients p",
     1, 0),
    ("SELECT gender FROM patients WHERE subject_id IN (SELECT subject_id FROM icustays)", 1, 0),
    ("SELECT gender FROM patients WHERE subject_id IN ids", 0, 0),
    ("SELECT gender FROM patients WHERE subject_id IN nowhere", 1, 0),
    # common table expressions
    ("WITH c AS (SELECT hadm_id FROM admissions) SELECT hadm_id FROM c", 0, 0),
    ("WITH c AS (SELECT hadm_id FROM admissions) SELECT dob FROM c", 1, 0),
    ("WITH c(h) AS (SELECT hadm_id FROM admissions) SELECT h FROM c", 0, 0),
    ("WITH c(h) AS (SELECT hadm_id FROM admissions) SELECT hadm_id FROM c", 1, 0),
    ("WITH c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT n FROM c", 0, 0),
    ("WITH a AS (SELECT x FROM b), b AS (SELECT 1 AS x) SELECT x FROM a", 0, 0),
    ("WITH c AS (SELECT 1 AS x) SELECT d.x FROM c", 1, 0),
    # compounds, values, windows
    ("SELECT gender FROM patients UNION SELECT nope FROM admissions ORDER BY 1", 1, 0),
    ("VALUES (1), (2)", 0, 0),
    ("SELECT column1 FROM (VALUES (1))", 0, 0),
    ("SELECT rank() OVER (PARTITION BY gender ORDER BY nope) FROM patients", 1, 0),
    ("SELECT sum(subject_id) OVER w FROM patients WINDOW w AS (ORDER BY dob)", 0, 0),
    # joins on declared keys, in either direction
    ("SELECT 1 FROM patients p JOIN admissions a ON p.subject_id = a.subject_id", 0, 0),
    ("SELECT 1 FROM admissions a JOIN patients p ON a.subject_id = p.subject_id", 0, 0),
    ("SELECT 1 FROM chartevents c JOIN d_items d ON c.itemid = d.itemid", 0, 0),  # implied key
    ("SELECT 1 FROM patients, admissions WHERE patients.subject_id = admissions.subject_id", 0, 0),
    ("SELECT 1 FROM patients JOIN admissions USING (subject_id)", 0, 0),
    # joins on anything else
    ("SELECT 1 FROM patients p JOIN admissions a ON p.row_id = a.row_id", 0, 1),
    ("SELECT 1 FROM patients p JOIN admissions a ON p.row_id == a.hadm_id AND p.dob = a.admittime",
     0, 2),
    ("SELECT 1 FROM patients p, chartevents c WHERE p.subject_id = c.subject_id", 0, 1),
    ("SELECT 1 FROM chartevents c JOIN prescriptions r USING (hadm_id)", 0, 1),  # two children
    ("SELECT 1 FROM patients NATURAL JOIN admissions", 0, 1),  # subject_id is declared, row_id not
    ("SELECT 1 FROM admissions a JOIN chartevents USING (hadm_id, subject_id)", 0, 1),
    ("SELECT 1 FROM patients JOIN admissions USING (hadm_id)", 1, 0),
    ("SELECT 1 FROM patients p JOIN admissions a ON (p.row_id, p.dob) = (a.row_id, a.admittime)",
     0, 2),
    ("SELECT 1 FROM patients p WHERE EXISTS (SELECT 1 FROM admissions a WHERE a.row_id = p.row_id)",
     0, 1),
    # self-joins compare one table; derived tables pass their columns through
    ("SELECT 1 FROM admissions a JOIN admissions b ON a.subject_id = b.subject_id", 0, 0),
    ("SELECT 1 FROM admissions a JOIN admissions b USING (row_id)", 0, 0),
    ("SELECT 1 FROM (SELECT hadm_id AS h FROM admissions) a JOIN chartevents c ON c.hadm_id = a.h",
     0, 0),
    ("SELECT 1 FROM (SELECT row_id AS h FROM admissions) a JOIN chartevents c ON c.hadm_id = a.h",
     0, 1),
    ("WITH v AS (SELECT subject_id FROM patients) SELECT 1 FROM v JOIN prescriptions r"
     " ON r.subject_id = v.subject_id", 0, 1),
    ("SELECT 1 FROM (SELECT max(row_id) AS m FROM admissions) a JOIN patients p ON p.row_id = a.m",
     0, 0),  # an aggregate is no column
    ("SELECT 1 FROM ((chartevents c JOIN d_items d ON c.itemid = d.itemid)"
     " JOIN admissions a ON a.row_id = d.itemid)", 0, 1),
    ("SELECT d.label FROM (chartevents c JOIN d_items d ON c.itemid = d.itemid) WHERE c.nope = 1",
     1, 0),
    # predicates that are no equality of columns
    ("SELECT 1 FROM patients p, admissions a WHERE p.row_id < a.row_id", 0, 0),
    ("SELECT 1 FROM patients p, admissions a WHERE p.row_id = a.row_id + 1", 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "failed", "bad"), CASES)
def test_hand_worked(schema: Schema, sql: str, failed: int, bad: int) -> None:
    found = ground(sql, schema)
    assert found is not None
    assert (found.failed_refs, found.bad_joins) == (failed, bad)


@pytest.mark.parametrize("sql", [c[0] for c in CASES])
def test_sqlite_runs_exactly_what_resolves(
    schema: Schema, connection: sqlite3.Connection, sql: str
) -> None:
    found = ground(sql, schema)
    assert found is not None
    try:
        connection.execute(sql).fetchall()
        runs = True
    except sqlite3.OperationalError as error:
        assert "syntax" not in str(error)  # noqa: PT017
        runs = False
    assert runs == (found.failed_refs == 0)


def test_foreign_keys_are_read_also_without_named_columns(schema: Schema) -> None:
    pairs = {tuple(sorted(pair)) for pair in schema.foreign_keys}
    assert (("chartevents", "itemid"), ("d_items", "itemid")) in pairs
    assert len(pairs) == 4


def test_without_declared_keys_bad_joins_are_missing() -> None:
    schema = Schema({"a": ("x",), "b": ("x",)})
    found = ground("SELECT 1 FROM a JOIN b ON a.x = b.x", schema)
    assert found is not None
    assert found.bad_joins is None


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        ";",
        "SELECT 1; SELECT 2",
        "DELETE FROM patients",
        "WITH x AS (SELECT 1) DELETE FROM patients",
        "PRAGMA table_info(patients)",
        "EXPLAIN SELECT 1",
        "SELECT FROM WHERE",
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "1 + " * 9000 + "1",
        "SELECT '" + "x" * 30_000 + "'",
        "I would look at the patients table",
        "\x00\ud800",
    ],
)
def test_what_no_parser_reads_is_missing(schema: Schema, sql: str) -> None:
    assert ground(sql, schema) is None


@pytest.mark.parametrize(
    "sql", ["SELECT 1;", "SELECT 1;;", "SELECT 1 -- done", "/* a */ SELECT 1 ;"]
)
def test_decoration_is_no_second_statement(sql: str) -> None:
    assert parse_query(sql) is not None


def test_files_that_are_no_database_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"not a database at all, only text" * 50)
    with pytest.raises(UserError, match=r"x\.sqlite"):
        Schema.read(path)
    with pytest.raises(UserError, match="missing"):
        Schema.read(tmp_path / "missing.sqlite")
