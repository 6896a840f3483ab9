"""A pytest plugin that sums the seconds of the tests of each marker (`-p marker_times`)."""

from __future__ import annotations

from collections import defaultdict

import pytest

MARKERS = ("slow", "slurm", "vllm", "browser", "gpu", "data")
_seconds: dict[str, float] = defaultdict(float)
_tests: dict[str, int] = defaultdict(int)
_markers_of: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remember the first known marker of each test; a test without one is `fast`."""
    for item in items:
        found = (m for m in MARKERS if item.get_closest_marker(m))
        _markers_of[item.nodeid] = next(found, "fast")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add set-up, call and tear-down."""
    marker = _markers_of.get(report.nodeid, "fast")
    _seconds[marker] += report.duration
    _tests[marker] += report.when == "call"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per marker, and the total."""
    terminalreporter.section("time budget per marker")
    for marker in sorted(_seconds, key=lambda m: -_seconds[m]):
        terminalreporter.line(f"{marker:8} {_tests[marker]:5} run {_seconds[marker]:8.1f} s")
    terminalreporter.line(
        f"{'total':8} {sum(_tests.values()):5} run {sum(_seconds.values()):8.1f} s"
    )
