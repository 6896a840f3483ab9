"""Stage report: the run's page and its CSV files, from files alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.ledger import Ledger
from sentinel.report.render import render_report
from sentinel.report.summary import cross_agent_table

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

STAGE = "report"


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Write `report.html` and `report/*.csv`, and print the central table.

    Always done anew: it takes seconds, and the ledger may have grown.
    """
    render_report(
        run_dir.root,
        run_dir.report_path,
        title=config.report.title,
        ledger=Ledger.beside(run_dir.root).folder,
    )
    from rich.console import Console

    console = Console()
    table = cross_agent_table(run_dir.root, console.width)
    if table is not None:
        console.print(table)
