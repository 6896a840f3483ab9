"""`sentinel cascade-sweep TABLE…`: the whole matrix of cells, scorers, targets and seeds.

Ray Tune runs one trial per block of seeds; rows, summary and page lie in the run directory, and the
same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from cluster.sweep import Block
    from sentinel.cascade.config import CascadeConfig

STAGE = "cascade"
NAME = "cascade_rows"
VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TABLE…, the run directory, and the settings of all cells."""
    add = parser.add_argument
    add("tables", metavar="TABLE", type=Path, nargs="+", help="round_scores, Parquet or CSV")
    add("--run-dir", type=Path, required=True, metavar="DIR", help="where rows and summary go")
    add("--target", nargs="+", metavar="ρ", help="default: 0.8 0.85 0.9 0.95 0.98 0.99")
    add("--mode", choices=("paper", "strict"), default="paper", help="default: %(default)s")
    add("--method", choices=("fixed-sequence", "full-search", "certificate", "margin"))
    add("--grid", nargs="+", metavar="t", help="budgets (default: 0.85 0.9 0.95 0.98 0.99 1)")
    add("--gates", type=int, default=6, help="gates at rounds 1…GATES (default: %(default)s)")
    add("--margin", default="0.02", help="δ asked for above the target (default: %(default)s)")
    add("--after-feedback", action="store_true", help="gates are not read on the last round")
    add("--unit", choices=("task", "group"), default="task", help="what is split")
    add("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    add("--seeds", type=int, help="splits per cell and scorer (default: 20; 1 in strict mode)")
    add("--block", type=int, default=5, help="seeds per trial (default: %(default)s)")
    add("--workers", type=int, help="CPUs to use (default: all of this allocation)")
    add("--on", choices=("local", "debug"), default="local", help="Ray here, or a plain loop")


def main(args: argparse.Namespace) -> int:
    """Run what is missing, write rows and summary; 3 when a block failed (named on stderr)."""
    from cluster.pool import open_cluster
    from cluster.run_dir import RunDir
    from sentinel.cascade.config import CascadeConfig
    from sentinel.cascade.gates import GRID
    from sentinel.cascade.sweep import TARGETS

    if args.block < 1 or (args.workers is not None and args.workers < 1):
        raise UserError("--block and --workers must be ≥ 1", "change the numbers given")
    config = CascadeConfig.of(
        args.target or TARGETS,
        args.mode,
        args.method,
        args.grid or GRID,
        margin=args.margin,
        seeds=args.seeds,
        gates=args.gates,
        after_feedback=args.after_feedback,
        seed=args.seed,
        unit=args.unit,
    )
    run_dir = RunDir(args.run_dir.expanduser())
    with (
        run_dir.lock(),
        open_cluster(args.on, args.workers) as cluster,
    ):
        found, failed = run(args.tables, config, args.block, run_dir, cluster)
    _show(found)
    for line in failed:
        print(f"sentinel: missing: {line}", file=sys.stderr)
    return 3 if failed else 0


def run(
    paths: list[Path], config: CascadeConfig, size: int, run_dir: RunDir, cluster: Cluster
) -> tuple[dict[str, Any], list[str]]:
    """The summary that `cascade-sweep.json` holds, and a line per block that failed.

    Raises the first error of a block that is a bug, after the finished ones are written.
    """
    from cluster import files
    from cluster.progress import Progress
    from cluster.sweep import Block, sweep
    from sentinel.cascade import driver
    from sentinel.cascade.sweep import block, blocks, input_hash, matrix, summaries
    from sentinel.report.cascade_page import render_sweep

    whole = matrix(((str(path), driver.read(path)) for path in paths), config)
    hashes = [input_hash(rounds, config) for rounds in whole.cells]
    planned = [
        Block(
            whole.cells[part.index].cell,
            whole.cells[part.index].scorer,
            part.name,
            part,
            hashes[part.index],
        )
        for part in blocks(whole, size)
    ]
    with (
        run_dir.timed("cascade-sweep", trials=len(planned)),
        Progress(STAGE, len(planned), unit="blocks", run_dir=run_dir) as progress,
    ):
        swept = sweep(cluster, run_dir, STAGE, planned, block, whole, progress=progress)
    rows = _gather(run_dir, [*swept.kept, *swept.ran])
    found = {
        "version": VERSION,
        "mode": config.mode,
        "settings": config.to_dict(),
        "cells": [] if rows is None else summaries(rows, config.targets),
        "missing": sorted(swept.failed),
    }
    files.write_json(run_dir.root / "cascade-sweep.json", found)
    if found["cells"]:
        render_sweep(found, run_dir.root / "cascade-sweep.html")
    for name, error in swept.failed.items():
        if error.kind != "user":
            raise RuntimeError(f"{name}: {error.cause}\n{error.trace}") from error.error
    return found, [f"{name}: {error.cause}" for name, error in swept.failed.items()]


def _gather(run_dir: RunDir, done: list[Block]) -> pa.Table | None:
    """The table `cascade_rows` of the blocks of this plan; parts of another block size stay out."""
    import pyarrow as pa

    from cluster import files

    plan: dict[tuple[str, str], set[str]] = {}
    for b in done:
        plan.setdefault((b.benchmark, str(b.agent)), set()).add(b.item)
    gathered = []
    for (cell, scorer), items in plan.items():
        parts = {
            item: table
            for item, table in run_dir.read_parts(STAGE, cell, scorer, NAME)
            if item in items
        }
        source = files.digest({b.item: b.input_hash for b in done if b.item in parts})
        table = pa.concat_tables(parts.values())
        if not run_dir.has_table(NAME, cell, scorer, source):
            run_dir.write_table(NAME, cell, scorer, table, stage="cascade-sweep", source=source)
        gathered.append(table)
    return pa.concat_tables(gathered) if gathered else None


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sentinel.cascade.show import spread

    table = Table("cell", "scorer", "target", "recall", "savings", "no-op", "no recall")
    for cell in found["cells"]:
        for row in cell["summary"]:
            if row["allocation"] == "cascade":
                table.add_row(
                    Text(cell["cell"]),  # names come from the user's table: no markup
                    Text(cell["scorer"]),
                    row["target"],
                    spread(row["recall_mean"], row["recall_sd"]),
                    spread(row["savings_mean"], row["savings_sd"]),
                    f"{row['no_op']}/{row['seeds']}",
                    str(row["no_recall"]),
                )
    console = Console(highlight=False)
    console.print(table)
    print(f"mode {found['mode']}; ± is the spread of the splits over seeds")
