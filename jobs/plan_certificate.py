"""`sentinel plan-certificate`: how many successes a promise costs, before any data are seen."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, numbers lost, power."""
    add = parser.add_argument
    add(
        "--target",
        nargs="+",
        metavar="ρ",
        default=["0.9", "0.95", "0.98", "0.99"],
        help="share of the successes to keep (default: 0.9 0.95 0.98 0.99)",
    )
    add(
        "--lost",
        nargs="+",
        type=int,
        metavar="N",
        default=[0, 1, 2, 5],
        help="successes that may be lost (default: 0 1 2 5)",
    )
    add("--power", default="0.8", help="chance to pass (default: %(default)s)")
    add(
        "--gap",
        nargs="+",
        metavar="δ",
        default=["0.02", "0.03", "0.05"],
        help="true recall above the target (default: 0.02 0.03 0.05)",
    )
    add("--alpha", default="0.05", help="level (default: %(default)s)")
    add(
        "--shared",
        type=int,
        default=1,
        metavar="M",
        help="targets or policies on the same sample, which share α (default: %(default)s)",
    )
    add("--successes", type=int, metavar="N", help="say what N successes can promise at most")
    add("--json", action="store_true", help="print JSON instead of a table")


def main(args: argparse.Namespace) -> int:
    """Print the table of costs."""
    from fractions import Fraction

    from sentinel.cascade.planner import certifiable, plan
    from sentinel.errors import UserError
    from sentinel.user_tables import dumps

    found = plan(args.target, args.alpha, args.lost, args.power, args.gap, args.shared)
    if args.successes is not None:
        if args.successes < 1:
            raise UserError(f"{args.successes} successes", "give a number ≥ 1")
        level = Fraction(found["alpha"]) / args.shared
        found["successes"] = args.successes
        found["certifiable"] = certifiable(args.successes, level)
    if args.json:
        sys.stdout.write(dumps(found))
    else:
        from sentinel.cascade import show

        show.show_plan(found)
    return 0
