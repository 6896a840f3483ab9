"""`sentinel cascade TABLE`: the abort cascade alone, on anyone's `round_scores`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from sentinel.cascade.config import CascadeConfig
    from sentinel.cascade.gates import Thresholds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TABLE, and the settings that a run config would hold."""
    add = parser.add_argument
    add("table", metavar="TABLE", type=Path, help="round_scores, Parquet or CSV")
    add(
        "--target",
        nargs="+",
        metavar="ρ",
        default=["0.95"],
        help="share of the successes to keep; several share one α (default: 0.95)",
    )
    add(
        "--mode",
        choices=("strict", "paper"),
        default="strict",
        help="strict: disjoint pools, one rollout per task, may promise; "
        "paper: splits re-drawn by seed, promises nothing (default: strict)",
    )
    add(
        "--method",
        choices=("fixed-sequence", "full-search", "certificate", "margin"),
        help="how the policy is chosen (default: fixed-sequence; in paper mode margin)",
    )
    add("--grid", nargs="+", metavar="t", help="budgets (default: 0.85 0.9 0.95 0.98 0.99 1)")
    add("--gates", type=int, default=6, help="gates at rounds 1…GATES (default: %(default)s)")
    add(
        "--thresholds",
        type=Path,
        metavar="FILE",
        help="your own thresholds per gate and budget, as JSON (`gates` of an earlier --json); "
        "they replace --grid, --gates and --gate",
    )
    add("--alpha", default="0.05", help="level of each gate (default: %(default)s)")
    add("--alpha-promise", default="0.05", help="level of the promise (default: %(default)s)")
    add("--margin", default="0.02", help="δ asked for above the target (default: %(default)s)")
    add("--gate", choices=("clopper-pearson", "conformal"), default="clopper-pearson")
    add("--after-feedback", action="store_true", help="gates are not read on the last round")
    add("--seed", type=int, default=0, help="of splits and rollouts (default: %(default)s)")
    add("--seeds", type=int, help="splits drawn in paper mode (default: 20)")
    add(
        "--unit",
        choices=("task", "group"),
        default="task",
        help="what is split, and counts as independent (default: task)",
    )
    add("--rollouts", choices=("one", "all"), help="per task, where something is promised")
    add(
        "--unseen-scorer",
        action="store_true",
        help="declare that the scorer was fitted on none of the table's tasks",
    )
    add("--memory-mb", type=float, default=1024.0, help="for the search (default: %(default)g)")
    add("--json", action="store_true", help="print JSON instead of tables")
    add("--out", type=Path, metavar="FILE", help="write the JSON to a file")
    add("--export", type=Path, metavar="FILE", help="write the frozen monitor (strict mode)")
    add("--report", type=Path, metavar="DIR", help="write a page of figures, and their CSV files")
    add(
        "--simulate",
        type=int,
        default=200,
        metavar="DRAWS",
        help="draws from a known law for the page, 0 for none (default: %(default)s)",
    )


def main(args: argparse.Namespace) -> int:
    """Print budget, thresholds, recall, savings and promises of every cell and scorer."""
    from sentinel.cascade import driver
    from sentinel.cascade.config import CascadeConfig
    from sentinel.cascade.gates import GRID
    from sentinel.user_tables import dumps

    config = CascadeConfig.of(
        args.target,
        args.mode,
        args.method,
        args.grid or GRID,
        alpha=args.alpha,
        alpha_promise=args.alpha_promise,
        margin=args.margin,
        seeds=args.seeds,
        rollouts=args.rollouts,
        gates=args.gates,
        gate=args.gate,
        after_feedback=args.after_feedback,
        seed=args.seed,
        unit=args.unit,
        unseen_scorer=args.unseen_scorer,
        memory=int(args.memory_mb * 1e6),
        given=None if args.thresholds is None else _given(args.thresholds),
    )
    if args.export is not None and config.mode != "strict":
        raise UserError("paper mode exports no monitor", "use --mode strict")
    table = driver.read(args.table)
    found = driver.cascade(table, config)
    if args.export is not None:
        _export(found, args.export)
    if args.out is not None:
        args.out.write_text(dumps(found), encoding="ascii")
    page = None if args.report is None else _report(found, table, config, args)
    if args.json:
        sys.stdout.write(dumps(found))
    else:
        from sentinel.cascade import show

        show.show(found)
        if page is not None:
            print(f"page: {page}")
    return 0


def _report(
    found: dict[str, Any], table: pa.Table, config: CascadeConfig, args: argparse.Namespace
) -> Path:
    """Sweep the margin on the same draws, simulate, and write the page into a folder."""
    from sentinel.cascade.margins import margin_sweep, with_margin
    from sentinel.cascade.simulated import simulated_rows
    from sentinel.report.cascade_page import render_cascade

    if args.simulate < 0:
        raise UserError(f"{args.simulate} draws", "give --simulate 0 or more")
    rows = list(margin_sweep(table, config, with_margin(config.margin)))
    simulated = None
    if args.simulate:
        simulated = simulated_rows(config.targets, args.simulate, seed=config.seed)
    args.report.mkdir(parents=True, exist_ok=True)
    title = f"Abort cascade: {args.table.name}"
    page = args.report / "cascade.html"
    return render_cascade(found, rows, page, simulated=simulated, title=title)


def _given(path: Path) -> Thresholds:
    from sentinel.cascade.gates import Thresholds

    try:
        return Thresholds.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", "name a JSON file") from error


def _export(found: dict[str, Any], path: Path) -> None:
    from sentinel.cascade.policy import CascadePolicy

    policies = [t["policy"] for cell in found["cells"] for t in cell["targets"]]
    if len(policies) != 1:
        raise UserError(
            f"{len(policies)} policies, but one monitor is exported at a time",
            "name one --target, and give a table of one cell and scorer",
        )
    path.write_text(CascadePolicy.from_dict(policies[0]).to_json() + "\n", encoding="ascii")
