"""Examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import sentinel

TORCH_ROOMS = ("sentinel.heads.model", "sentinel.heads.fit", "sentinel.nano.model")
MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(sentinel.__path__, "sentinel.")
    if m.name not in (*TORCH_ROOMS, "sentinel.nano.train")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_at_all() -> None:
    counts = [doctest.testmod(importlib.import_module(n)).attempted for n in MODULES]
    assert sum(counts) > 10
