"""Benchmarks by kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sentinel.benchmarks.registry import load
from sentinel.errors import UserError

OWN = """
class Mine:
    def __init__(self, name: str, size: int = 3) -> None:
        self.name, self.size = name, size
"""


def test_the_name_is_the_kind_by_default() -> None:
    assert load({"name": "clinic", "n_questions": 60}).name == "clinic"
    assert load({"name": "ward", "kind": "clinic", "n_questions": 60}).name == "ward"


def test_a_class_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_benchmark.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    mine: Any = load({"name": "m", "kind": "my_own_benchmark:Mine", "size": 5})
    assert (mine.name, mine.size) == ("m", 5)
    with pytest.raises(UserError, match=r"unknown color.*takes: name, size"):
        load({"name": "m", "kind": "my_own_benchmark:Mine", "color": 1})
    with pytest.raises(UserError, match="missing name"):
        load({"kind": "my_own_benchmark:Mine"})
    with pytest.raises(UserError, match="check the spelling"):
        load({"name": "m", "kind": "my_own_benchmark:Yours"})


@pytest.mark.parametrize("mapping", [{"name": "hospital"}, {"name": "x", "kind": "nope"}, {}])
def test_an_unknown_kind_lists_the_valid_ones(mapping: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"use one of: alfworld, .*clinic"):
        load(mapping)


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(UserError, match="no_such_module"):
        load({"name": "x", "kind": "no_such_module:Class"})
