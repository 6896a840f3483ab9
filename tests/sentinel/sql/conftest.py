"""A sandbox over a small database with every kind of value that makes trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sql_sandbox import CLOCK, make_database

from sentinel.sql.sandbox import Limits, SandboxPool


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("sql") / "hospital.sqlite")


@pytest.fixture(scope="session")
def pool(database: Path) -> Iterator[SandboxPool]:
    with SandboxPool(database, CLOCK, 2, Limits(seconds=1.0)) as sandbox:
        yield sandbox
