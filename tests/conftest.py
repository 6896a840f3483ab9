"""One Ray for the whole test session, started by the first test that asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
# As on a worker of one CPU: what tests multiply is small, two threads mostly wait for each other.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when numpy and torch are loaded
    os.environ.setdefault(name, "1")
# How long one example takes says more about the machine's load than about the code.
settings.register_profile("suite", deadline=None)
# CI repeats itself: what it finds, anyone finds again. New examples are tried at a desk.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "suite")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[object]:
    """A `Cluster` over a private Ray: 2 CPUs, 200 MB object store, token, no dashboard.

    Its temp dir carries this process's id, so that the next session removes what a dead one left.
    """
    from cluster.pool import open_cluster

    # What a test imports, its workers can import.
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    with open_cluster("local", cpus=2, gpus=0, object_store_mb=200) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running throw-away Slurm whose nodes see pytest's temporary folders."""
    from slurm_lab import NoLab, running_lab

    try:
        # Small arrays, so that one of four is cut.
        with running_lab(tmp_path_factory.getbasetemp(), arguments=("--max-array", "3")) as root:
            yield root
    except NoLab as reason:
        pytest.skip(str(reason))


@pytest.fixture
def slurm(slurm_lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's folder, with SLURM_CONF set to it for one test."""
    from slurm_lab import config_file

    monkeypatch.setenv("SLURM_CONF", str(config_file(slurm_lab)))
    monkeypatch.setenv("SENTINEL_RAY_TMP", "/tmp")  # of the node, where tests look for leftovers
    return slurm_lab
