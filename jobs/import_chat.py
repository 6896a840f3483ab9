"""`sentinel import-chat FILE`: episodes collected elsewhere as a scored `round_scores` table."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from sentinel.errors import UserError

_SHOWN = 10
"""Bad records named on the terminal; the JSON names all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE, and how its episodes are read and scored."""
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        type=Path,
        help="a JSON list of episodes with chat messages, or JSONL; also .xz or .gz",
    )
    add(
        "--out",
        metavar="TABLE",
        type=Path,
        default=Path("round_scores.parquet"),
        help="the Parquet file to write (default: %(default)s)",
    )
    add(
        "--mode",
        choices=("strict", "paper"),
        default="strict",
        help="strict: models see fit tasks only, pools are written; "
        "paper: cross-fitted over five folds of tasks (default: strict)",
    )
    add("--seed", type=int, default=0, help="of pools or folds (default: %(default)s)")
    add("--gates", type=int, default=6, help="rounds 1…GATES are scored (default: %(default)s)")
    add(
        "--key",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=KEY",
        help="where a record holds task_id, trial, success (or reward), messages (or traj); id=KEY "
        "names episodes instead of trial, trial=- numbers them; dots go into nested objects",
    )
    add("--cell", help="name of the agent on this task set (default: from the file's name)")
    add("--json", action="store_true", help="print JSON instead of lines")


def main(args: argparse.Namespace) -> int:
    """Read, score, write; 3 when records were bad or a round could not be scored."""
    from cluster.files import write_parquet
    from sentinel import chat_import, round_tfidf
    from sentinel.user_tables import dumps

    if args.out.suffix.lower() not in (".parquet", ".pq"):
        raise UserError(f"{args.out} is no .parquet file", "name one: --out round_scores.parquet")
    imported = chat_import.read(args.file, chat_import.parse_keys(args.key))
    scored = round_tfidf.score(imported.episodes, args.mode, args.seed, args.gates)
    table = round_tfidf.table(scored, args.cell or args.file.name.split(".")[0] or "cell")
    try:
        write_parquet(args.out, table)
    except OSError as error:
        raise UserError(f"{args.out} cannot be written: {error}", "choose another --out") from error
    found = _summary(imported, scored, args)
    if args.json:
        sys.stdout.write(dumps(found))
    else:
        for line in _lines(found):
            print(line)
    return 3 if imported.bad or scored.incomplete else 0


def _summary(imported: Any, scored: Any, args: argparse.Namespace) -> dict[str, Any]:
    from sentinel.chat_messages import COST_UNIT

    episodes = imported.episodes
    won = [e for e in episodes if e.success]
    return {
        "table": str(args.out),
        "records": imported.records,
        "episodes": len(episodes),
        "tasks": len({e.task_id for e in episodes}),
        "successes": len(won),
        "tasks_with_success": len({e.task_id for e in won}),
        "unknown_outcomes": dict(imported.unknown),
        "bad": list(imported.bad),
        "duplicates": list(imported.duplicates),
        "keys": dict(imported.keys),
        "merged_messages": sum(e.transcript.merged for e in episodes),
        "parts_without_text": sum(e.transcript.other_parts for e in episodes),
        "cost_unit": COST_UNIT,
        "scoring": scored.facts,
        "next": f"sentinel cascade {shlex.quote(str(args.out))} --mode {args.mode}",
    }


def _lines(found: dict[str, Any]) -> list[str]:
    scoring = found["scoring"]
    out = [
        f"{found['episodes']} episodes of {found['tasks']} tasks; {found['successes']} successes "
        f"in {found['tasks_with_success']} tasks"
    ]
    for value, n in sorted(found["unknown_outcomes"].items()):
        out.append(f"{n} episodes with outcome {value}: neither 1 nor 0, so unknown")
    for what, name in (("bad", "records left out"), ("duplicates", "repeated episodes left out")):
        if found[what]:
            out.append(f"{len(found[what])} {name}:")
            out += [f"  {line}" for line in found[what][:_SHOWN]]
            if len(found[what]) > _SHOWN:
                out.append(f"  … and {len(found[what]) - _SHOWN} more (--json names all)")
    if found["merged_messages"]:
        out.append(f"{found['merged_messages']} assistant messages were joined to the one before")
    if found["parts_without_text"]:
        out.append(f"{found['parts_without_text']} content parts hold no text and were passed over")
    out.append(f"cost: {found['cost_unit']}")
    if "pools" in scoring:
        pools = ", ".join(f"{name} {n}" for name, n in scoring["pools"].items())
        out.append(f"mode strict, seed {scoring['seed']}: tasks of {pools}; fit tasks get no score")
    else:
        refused = len(scoring["refused_seeds"])
        out.append(
            f"mode paper: {scoring['folds']} folds by task, seed {scoring['fold_seed']}"
            + (f" ({refused} seeds before it gave a fold with one class)" if refused else "")
        )
    out.append(f"AUROC for failure on {scoring['auroc_on']}:")
    for row in scoring["rounds"]:
        area = "undefined" if row["auroc"] is None else f"{row['auroc']:.3f}"
        out.append(
            f"  round {row['round']}: {area} ({row['auroc_n']} episodes); alive {row['alive']}, of "
            f"them {row['failures']} fail"
        )
        out += [f"    without a score: {reason}" for reason in row["reasons"]]
    return [*out, f"{found['table']} written; next: {found['next']}"]
