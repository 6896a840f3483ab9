"""`sentinel`, the console script (also `python -m jobs`).

The command decides what is imported, so that `--help` needs nothing but the standard library. Exit
codes: 0 done, 1 a bug (with its traceback), 2 something the user can mend (one line), 3 done except
for items that are missing or failed (they are named).
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("jobs.run", "run every stage of a config, resuming what is unfinished"),
    "collect": ("jobs.run", "stage 1: agents work through the tasks"),
    "label": ("jobs.run", "stage 2: which answers are right; the ten features"),
    "judge": ("jobs.run", "stage 2: a model's verdict on the answers that the scorer rejects"),
    "judge-audit": ("jobs.judge_audit", "two people check the judge: export cases, import sheets"),
    "activations": ("jobs.run", "stage 3: hidden states of every round, for probes"),
    "heads": ("jobs.run", "stage 4: fit the two text heads, score every prefix"),
    "audit": ("jobs.run", "stage 5: baselines, controls and the feature screen, train pool only"),
    "probes": ("jobs.run", "stage 4: score the first rounds of every episode for failure"),
    "calibrate": ("jobs.run", "stage 5: maps, gate and stop; decisions on the held-out pool"),
    "search": ("jobs.run", "stage 5: the abort cascade's gates, in both modes"),
    "bootstrap": ("jobs.run", "stage 6: cluster-bootstrap intervals"),
    "report": ("jobs.run", "stage 7: one self-contained HTML page"),
    "score": ("jobs.score", "a frozen monitor reads what is new in a run: prefix_scores"),
    "decide": ("jobs.decide", "the decision layer alone, on anyone's prefix_scores table"),
    "cascade": ("jobs.cascade", "the abort cascade alone, on anyone's round_scores table"),
    "cascade-sweep": ("jobs.cascade_sweep", "the cascade of many cells, scorers and seeds on Ray"),
    "import-chat": ("jobs.import_chat", "score chat episodes collected elsewhere, for cascade"),
    "plan-certificate": (
        "jobs.plan_certificate",
        "how many successes a promise costs, before any data are seen",
    ),
    "plan": ("jobs.plan", "GPU hours, tokens, dollars, memory per stage, from a small pilot"),
    "compare-encoders": (
        "jobs.compare_encoders",
        "is another encoder worth it? out-of-fold AUROC on the same folds, with intervals",
    ),
    "pace": ("jobs.pace", "seconds per step of each agent, by a serial timed rerun"),
    "status": ("jobs.status", "what a run directory holds and what it lacks"),
    "doctor": ("jobs.doctor", "check data, engines, Ray, GPUs, Slurm for a config"),
    "prepare": ("jobs.prepare", "build a benchmark's database from its source files"),
    "tasks": ("jobs.tasks", "the task table of a config with groups and pools"),
    "freeze": ("jobs.freeze", "write a benchmark's tasks to a hashed file"),
    "sql": ("jobs.sql", "run queries in the sandbox, with the database's clock"),
    "train-nano": ("jobs.train_nano", "train the embedded agents of a benchmark"),
}


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; only the module of `command` is imported, for its arguments."""
    parser = argparse.ArgumentParser(
        prog="sentinel",
        description="Watch LLM agents work, learn which runs will fail, stop those early.",
        epilog="Start with: sentinel run configs/demo.yaml",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == command:
            imported = importlib.import_module(module)
            imported.add_arguments(sub)
            sub.set_defaults(main=imported.main)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    command = next((a for a in argv if not a.startswith("-")), None)
    try:
        args = _parse(argv, command)
        return int(args.main(args) or 0)
    except KeyboardInterrupt as error:
        number = error.args[0] if error.args else signal.SIGINT  # or another that asks to stop
        print("sentinel: interrupted; the same command goes on from here", file=sys.stderr)
        return 128 + int(number)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        from sentinel.errors import UserError

        user_error = _cause(error, UserError)
        if user_error is None and isinstance(error, OSError) and error.errno == errno.ENOSPC:
            user_error = f"the disk is full: {error}; make room and run the same command again"
        if user_error is None:
            raise
        print(f"sentinel: {user_error}", file=sys.stderr)
        return 2


def _parse(argv: Sequence[str], command: str | None) -> argparse.Namespace:
    """The arguments; `key.path=value` settings may also follow options."""
    parser = build_parser(command)
    args, rest = parser.parse_known_args(argv)
    late = [a for a in rest if "=" in a and not a.startswith("-")]
    if rest != late or (rest and not hasattr(args, "settings")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if late:
        args.settings = [*args.settings, *late]
    return args


def _cause(error: BaseException | None, kind: type[Exception]) -> Any:
    """The error a user can mend inside `error`, also where a worker's wrapper carries it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = getattr(error, "cause", None) or error.__cause__
        if not isinstance(error, BaseException):
            return None
    return None


def _version() -> str:
    # importlib.metadata costs 30 ms: only where it is asked for.
    if not {"--version"} & set(sys.argv):
        return ""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sentinel-suite")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
