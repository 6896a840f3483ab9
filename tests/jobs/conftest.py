"""What tests of collections share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.pool import Cluster, open_cluster


@pytest.fixture(scope="module")
def one_hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One built hospital for the module, away from the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTINEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def debug() -> Iterator[Cluster]:
    """A plain loop in this process."""
    with open_cluster("debug", cpus=1) as cluster:
        yield cluster


@pytest.fixture
def switches(tmp_path: Path) -> Path:
    """A folder for the faults of a scripted engine."""
    folder = tmp_path / "switches"
    folder.mkdir()
    return folder
