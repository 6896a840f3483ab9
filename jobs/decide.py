"""`sentinel decide TABLE`: the decision layer alone, on anyone's `prefix_scores`, as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from jobs.sections import BootstrapConfig, DecideConfig
from sentinel.errors import UserError

_DECIDE, _BOOTSTRAP = DecideConfig(), BootstrapConfig()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TABLE, and the settings that a run config would hold."""
    parser.add_argument("table", metavar="TABLE", type=Path, help="prefix_scores, Parquet or CSV")
    parser.add_argument(
        "--lambdas",
        nargs="+",
        metavar="λ",
        default=[repr(x) for x in _DECIDE.lambdas],
        help="stakes: the penalty of a wrong answer (default: 1 4 9)",
    )
    parser.add_argument(
        "--gate-budget",
        default=_DECIDE.gate_budget,
        metavar="SHARE",
        help="share of answerable questions the gate may exit (default: %(default)s)",
    )
    parser.add_argument(
        "--selection-margin",
        default=_DECIDE.selection_margin,
        metavar="AUROC",
        help="what the hybrid estimator must gain to be used (default: %(default)s)",
    )
    parser.add_argument(
        "--shares",
        nargs="+",
        metavar="π",
        default=[repr(x) for x in _DECIDE.shares],
        help="shares of unanswerable questions to reweight to (default: 0.2 0.33)",
    )
    parser.add_argument("--resamples", type=int, default=_BOOTSTRAP.resamples)
    parser.add_argument("--seed", type=int, default=_BOOTSTRAP.seed, help="of the bootstrap")
    parser.add_argument("--estimator-seed", type=int, default=_DECIDE.estimator_seed)
    parser.add_argument(
        "--seconds-per-step",
        type=float,
        metavar="S",
        help="of a serial timed rerun: turns steps saved into time saved",
    )
    parser.add_argument("--agent", help="decide for this agent only")
    parser.add_argument(
        "--monitor",
        type=Path,
        metavar="FOLDER",
        help="evaluate this frozen monitor's policy instead of fitting one",
    )
    parser.add_argument("--out", type=Path, help="write the JSON to a file instead of stdout")


def main(args: argparse.Namespace) -> int:
    """Print thresholds, ladder and intervals of every agent in the table."""
    import pyarrow.compute as pc

    from sentinel.decide import DecideConfig as Settings
    from sentinel.decide import driver

    settings = Settings.of(
        args.lambdas,
        args.gate_budget,
        args.selection_margin,
        args.shares,
        resamples=args.resamples,
        seed=args.seed,
        estimator_seed=args.estimator_seed,
        seconds_per_step=args.seconds_per_step,
    )
    table = driver.read(args.table)
    if args.agent is not None:
        names = driver.agents_of(table)
        if args.agent not in names or "agent" not in table.column_names:
            raise UserError(f"no agent {args.agent} in {args.table}", f"it has: {', '.join(names)}")
        table = table.filter(pc.equal(table.column("agent"), args.agent))
    policy = None
    if args.monitor is not None:
        from sentinel.monitor import Monitor, load

        monitor = load(args.monitor)
        if not isinstance(monitor, Monitor):
            raise UserError(f"{args.monitor} is a cascade's monitor", "sentinel cascade TABLE")
        policy = monitor.policy
    text = driver.dumps(driver.document(driver.decide(table, settings, policy)))
    if args.out is None:
        print(text, end="")
    else:
        try:
            args.out.write_text(text, encoding="ascii")
        except OSError as error:
            raise UserError(f"cannot write {args.out}: {error}", "name another file") from error
    return 0
