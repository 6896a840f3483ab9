import json
import os
import sqlite3
from pathlib import Path

import pytest

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.declared import declared_keys, schema_with
from sentinel.sql.grounding import ground

DATA = os.environ.get("SENTINEL_TEST_DATA")
JOIN = "select * from a join b on a.id = b.a_id join b c on c.x = a.x"


def described(tmp_path, **changes):
    """tables.json of a database with a.id ← b.a_id."""
    one = {
        "db_id": "small",
        "table_names_original": ["A", "B"],
        "column_names_original": [[-1, "*"], [0, "ID"], [0, "X"], [1, "A_ID"], [1, "X"]],
        "foreign_keys": [[3, 1]],
    } | changes
    path = tmp_path / "tables.json"
    path.write_text(json.dumps([one]))
    return path


def database(tmp_path, keys=""):
    path = tmp_path / f"db{len(keys)}.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table a (id int primary key, x int)")
        connection.execute(f"create table b (a_id int, x int {keys})")
    connection.close()
    return path


def test_described_keys_count_else_those_of_the_database_else_none(tmp_path):
    pair = frozenset({("a", "id"), ("b", "a_id")})
    own = database(tmp_path, ", foreign key(x) references a(id)")
    assert schema_with(own, None, "small").foreign_keys == {frozenset({("b", "x"), ("a", "id")})}
    assert schema_with(own, described(tmp_path), "small").foreign_keys == {pair}
    plain = database(tmp_path)
    assert schema_with(plain, None, "small").foreign_keys == frozenset()
    found = ground(JOIN, schema_with(plain, described(tmp_path), "small"))
    assert found is not None
    assert found.bad_joins == 1  # the second join, on no declared pair


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"db_id": "other"}, "describes other, not small"),
        ({"foreign_keys": [[3, 99]]}, "no table description"),
        ({"table_names_original": ["A", "Z"]}, r"speaks of z\.a_id, which"),
    ],
)
def test_a_description_of_something_else_is_refused(tmp_path, changes, says):
    with pytest.raises(DataError, match=says):
        schema_with(database(tmp_path), described(tmp_path, **changes), "small")
    (tmp_path / "tables.json").write_text("{")
    with pytest.raises(DataError, match="no table description"):
        declared_keys(tmp_path / "tables.json", "small")


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")
@pytest.mark.parametrize(
    ("folder", "db_id", "n"),
    [("ehrsql", "mimic_iii", 25), ("ehrsql", "eicu", 9), ("ehrsql2024", "mimic_iv", 25)],
)
def test_the_published_descriptions_are_read(folder, db_id, n):
    assert len(declared_keys(Path(str(DATA)) / folder / "tables.json.xz", db_id)) == n
