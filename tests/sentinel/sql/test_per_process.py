"""A sandbox pool per process: kept, never carried, never a parent's."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from sentinel.sql.per_process import PerProcess
from sentinel.sql.sandbox import SandboxPool


@pytest.fixture
def database(tmp_path: Path) -> Path:
    import sqlite3

    path = tmp_path / "one.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (n INT)")
        connection.execute("INSERT INTO t VALUES (7)")
    connection.close()
    return path


def test_made_once_closed_and_made_again(database: Path) -> None:
    kept = PerProcess()
    assert not kept.is_open
    kept.close()  # nothing was opened
    pools = [kept.get(lambda: SandboxPool(database, "2105-12-31 23:59:00")) for _ in range(2)]
    assert pools[0] is pools[1]
    assert pools[0].query("select n from t").rows == ((7,),)
    assert kept.is_open
    assert not pickle.loads(pickle.dumps(kept)).is_open
    kept.close()
    assert not kept.is_open
    again = kept.get(lambda: SandboxPool(database, "2105-12-31 23:59:00"))
    assert again is not pools[0]
    kept.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_alone(database: Path) -> None:
    kept = PerProcess()
    pool = kept.get(lambda: SandboxPool(database, "2105-12-31 23:59:00"))
    child = os.fork()
    if child == 0:
        mine = kept.is_open
        kept.close()
        os._exit(int(mine))
    assert os.waitpid(child, 0)[1] == 0
    assert kept.get(lambda: pytest.fail("made anew")) is pool
    assert pool.query("select n from t").rows == ((7,),)
    kept.close()
