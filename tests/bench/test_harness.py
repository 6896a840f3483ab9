"""The harness measures in alternation and judges whole ranges."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def harness() -> ModuleType:
    path = Path(__file__).with_name("harness.py")
    spec = importlib.util.spec_from_file_location("bench_harness", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_pairs_alternate(harness: ModuleType) -> None:
    order: list[str] = []
    harness.pairs_of(lambda: order.append("a"), lambda: order.append("b"), 4)
    assert "".join(order) == "abbaabba"


def test_a_ratio_says_how_many_times_as_fast(harness: ModuleType) -> None:
    result = harness.paired(lambda: time.sleep(0.02), lambda: time.sleep(0.002), 3)
    assert result.low <= result.median <= result.high
    assert result.median > 2


def test_only_a_whole_range_misses_a_bar(harness: ModuleType) -> None:
    value = harness.Measured(2.0, 1.0, 3.0)
    assert not harness.Line("x", value, at_least=2.5).missed
    assert harness.Line("x", value, at_least=3.1).missed
    assert not harness.Line("x", value, at_most=1.5).missed
    assert harness.Line("x", value, at_most=0.9).missed
    assert str(harness.Line("x", value, "ms")).startswith("x 2 ms ")


def test_a_baseline_must_be_in_range(harness: ModuleType) -> None:
    harness.check_baseline("b", 1.9, 1.0)
    with pytest.raises(harness.BaselineOutOfRange):
        harness.check_baseline("b", 2.1, 1.0)
    with pytest.raises(harness.BaselineOutOfRange):
        harness.check_baseline("b", 0.4, 1.0)


def test_exit_codes(harness: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(tiny: bool) -> list[object]:
        return [harness.Line("x", harness.Measured(1.0, 1.0, 1.0), at_least=2.0)]

    def broken(tiny: bool) -> list[object]:
        raise harness.BaselineOutOfRange("slow")

    for arguments, code in (([], 0), (["--check"], 1), (["--check", "--tiny"], 0)):
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        assert harness.main("doc", bench) == code
    for arguments, code in (([], 1), (["--tiny"], 0)):
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        assert harness.main("doc", broken) == code


def test_the_inner_clock_adds_up(harness: ModuleType) -> None:
    clock = harness.InnerClock()
    timed = clock.wrap(time.sleep)
    timed(0.001)
    timed(0.001)
    assert clock.spent_ns >= 2e6
