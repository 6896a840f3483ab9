"""The paper's central table for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.report import ladder
from sentinel.report.blocks import DASH, Cell, Row, percent, signed, span, visible
from sentinel.report.load import load
from sentinel.report.results import cross_rows

if TYPE_CHECKING:
    from rich.table import Table


def cross_agent_rows(run_dir: Path) -> list[dict[str, Any]]:
    """One row per benchmark, agent and λ: vanilla and full scores, their difference, intervals.

    The columns are `sentinel.report.results.CROSS_COLUMNS`; undefined is None. Empty before a
    monitor was evaluated. Raises UserError when `run_dir` is no run directory.
    """
    return cross_rows(load(Path(run_dir)))


def cross_agent_table(run_dir: Path, width: int = 80) -> Table | None:
    """The same rows as a table for `rich`; None before a monitor was evaluated.

    From `width` 110 (columns of the terminal) on, also full − vanilla and the numbers of questions.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = cross_agent_rows(run_dir)
    if not rows:
        return None
    stakes = ladder.lambdas(rows)
    first = stakes[0]
    table = Table(
        title="Reliability Score RS(λ), held-out pool",
        caption="† the 95 % interval of (full − always abstain) excludes 0",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    several = len({row["benchmark"] for row in rows}) > 1
    wide = width >= 110
    table.add_column("agent", overflow="fold", min_width=10)
    titles = ["right\nansw.", *(f"vanilla\nλ={lam}" for lam in stakes)]
    titles += [*(f"full\nλ={lam}" for lam in stakes), "always\nabstain"]
    titles += [f"full − vanilla\n95 %, λ={first}", "questions\n/ groups"] if wide else []
    for title in titles:
        table.add_column(title, justify="right")
    for line in ladder.pivot([{**row, "system": "full"} for row in rows]):
        at = line["at"]
        name = f"{line['benchmark']} · {line['agent']}" if several else str(line["agent"])
        marks = {lam: " †" if at[lam]["dagger"] else "" for lam in at}
        cells = [
            visible(name),
            _words(percent(line["vanilla_accuracy"], digits=0)),
            *(
                _words(signed(at[lam]["rs_vanilla"], digits=2)) if lam in at else ""
                for lam in stakes
            ),
            *(
                _words(signed(at[lam]["rs_full"], digits=2)) + marks[lam] if lam in at else ""
                for lam in stakes
            ),
            _words(signed(line["always_abstain"], digits=2)),
        ]
        cells += [_gain(at[first]), f"{line['questions']} / {line['groups']}"] if wide else []
        # Text, not markup: a name with [brackets] is a name.
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _gain(row: Row) -> str:
    low, high = row["full_minus_vanilla_low"], row["full_minus_vanilla_high"]
    return span(low, high, 2) or str(row["full_minus_vanilla_note"] or DASH)


def _words(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text
