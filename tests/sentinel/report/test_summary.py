"""The central table for the terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from sentinel.errors import UserError
from sentinel.report.results import CROSS_COLUMNS
from sentinel.report.summary import cross_agent_rows, cross_agent_table


def test_one_row_per_agent_and_stake(run_path: Path) -> None:
    rows = cross_agent_rows(run_path)
    assert [(r["agent"], float(r["lam"])) for r in rows] == [
        (agent, lam) for agent in ("steady", "fabricator") for lam in (1, 4, 9)
    ]
    for row in rows:
        assert set(row) == set(CROSS_COLUMNS)
        gain = row["rs_full"] - row["always_abstain"]
        assert row["full_minus_abstain"] == pytest.approx(gain)
        low, high = row["full_minus_abstain_low"], row["full_minus_abstain_high"]
        assert row["dagger"] == (low is not None and (low > 0 or high < 0))


@pytest.mark.parametrize("width", [80, 140])
def test_printed(run_path: Path, width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(cross_agent_table(run_path, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "steady" in text
    assert "fabricator" in text
    assert "…" not in text
    assert ("full − vanilla" in text) is (width >= 110)


def test_names_are_no_markup(hostile_path: Path) -> None:
    assert cross_agent_table(hostile_path) is not None


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        cross_agent_rows(tmp_path)
