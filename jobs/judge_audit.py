"""`sentinel judge-audit`: two people check a judge on seeded cases, blind to its verdicts.

`export` writes one sheet per rater, `import` reads them back filled and keeps κ, the judge's
confusion with them and the Wilson interval of its agreement in the run directory, for the report.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.run_dir import RunDir

CASES = 100
SEED = 42


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action, the run, and what belongs to either."""
    actions = parser.add_subparsers(dest="action", metavar="export|import", required=True)
    export = actions.add_parser("export", help="write two empty sheets")
    export.add_argument("run_dir", metavar="RUN_DIR", type=Path)
    export.add_argument("--cases", type=int, default=CASES, help=f"how many (default {CASES})")
    export.add_argument("--seed", type=int, default=SEED, help=f"of the draw (default {SEED})")
    export.add_argument("--label", help="which judge, where the run has several")
    export.add_argument("--out", type=Path, help="folder of the sheets (RUN_DIR/judge/audit)")
    back = actions.add_parser("import", help="read the filled sheets, print and keep the numbers")
    back.add_argument("run_dir", metavar="RUN_DIR", type=Path)
    back.add_argument("sheets", metavar="SHEET", type=Path, nargs=2, help="one per rater")


def main(args: argparse.Namespace) -> int:
    """Export or import; 0."""
    from cluster.run_dir import RunDir
    from jobs.run import recorded_config

    root = args.run_dir.expanduser().absolute()
    recorded_config(root)  # refuses what is no run directory
    run_dir = RunDir(root)
    if args.action == "export":
        return export(run_dir, args.cases, args.seed, args.label, args.out)
    return read_back(run_dir, args.sheets)


def export(run_dir: RunDir, cases: int, seed: int, label: str | None, out: Path | None) -> int:
    """Draw cases among everything with a verdict, each content once; write two sheets."""
    from cluster import files
    from sentinel.judge.sheet import AuditCase, case_name, draw, write_sheet

    if cases < 1:
        raise UserError(f"--cases {cases}: at least one", "leave it out for 100")
    label, rows = _judged(run_dir, label)
    shown = {row["case"]: row["shown"] for row in rows}
    verdicts = {row["case"]: row["correct"] for row in rows}
    chosen = draw(list(shown), cases, seed)
    folder = (out or run_dir.root / "judge" / "audit").expanduser().absolute()
    paths = [folder / f"rater-{i}.csv" for i in (1, 2)]
    taken = [p for p in paths if p.exists()]
    if taken:
        raise UserError(f"{taken[0]} exists and may be filled", "name another folder: --out DIR")
    text = write_sheet([AuditCase(case_name(key), shown[key]) for key in chosen])
    files.write_json(
        _draw_path(run_dir),
        {
            "label": label,
            "seed": seed,
            "population": len(shown),
            "verdicts": {case_name(key): verdicts[key] for key in chosen},
        },
    )
    for path in paths:
        _write(path, text)
    few = f" (there are no more than {len(shown)})" if len(chosen) < cases else ""
    print(f"{len(chosen)} cases of {label}{few}: {paths[0]}, {paths[1]}")
    print(
        "each rater writes 1 (says what the gold result says) or 0 into the column verdict; then:"
    )
    print(f"sentinel judge-audit import '{run_dir.root}' '{paths[0]}' '{paths[1]}'")
    return 0


def read_back(run_dir: RunDir, sheets: list[Path]) -> int:
    """Read two filled sheets; keep and print what they say."""
    from cluster import files
    from sentinel.judge.agreement import audit
    from sentinel.judge.sheet import read_sheet
    from sentinel.report.scorers import AGREEMENT

    drawn = files.read_json(_draw_path(run_dir))
    if drawn is None or not isinstance(drawn.get("verdicts"), dict):
        raise UserError(
            f"no cases of {run_dir.root} were exported", "sentinel judge-audit export RUN_DIR"
        )
    if sheets[0].resolve() == sheets[1].resolve():
        raise UserError(f"{sheets[0]} is named twice", "name the sheets of two raters")
    verdicts: dict[str, bool] = drawn["verdicts"]
    first, second = (read_sheet(_text(path), list(verdicts), str(path)) for path in sheets)
    found = audit(verdicts, first, second)
    kept = {k: drawn[k] for k in ("label", "seed", "population")}
    files.write_json(run_dir.root / AGREEMENT, {**kept, **found})
    print("\n".join(lines(found)))
    return 0


def lines(found: dict[str, Any]) -> list[str]:
    """The audit's numbers for a terminal."""
    agreement, counts = found["agreement"], found["confusion"]
    kappa = "undefined" if found["kappa"] is None else f"{found['kappa']:.3f}"
    out = [f"two raters on {found['cases']} cases: κ {kappa}, {found['disputed']} disputed"]
    if agreement["n"]:
        out.append(
            f"the judge agrees on {agreement['agreed']} of {agreement['n']} undisputed cases: "
            f"{agreement['share']:.3f} [{agreement['low']:.3f}, {agreement['high']:.3f}] (Wilson)"
        )
    accepted, rejected = counts["judge_right_human_wrong"], counts["judge_wrong_human_right"]
    out.append(f"it accepts {accepted} that people reject, and rejects {rejected} that they accept")
    return out


def _judged(run_dir: RunDir, label: str | None) -> tuple[str, list[dict[str, Any]]]:
    rows = [r for r in run_dir.read("judgements").to_pylist() if r["correct"] is not None]
    known = sorted({row["label"] for row in rows})
    if not known:
        raise UserError(f"{run_dir.root} holds no verdict of a judge", "sentinel judge CONFIG")
    if label is None and len(known) > 1:
        raise UserError("several judges have verdicts", f"name one: --label {known[0]}")
    if label is not None and label not in known:
        raise UserError(f"no verdict of {label!r}", f"use --label {known[0]}")
    chosen = label or known[0]
    return chosen, [row for row in rows if row["label"] == chosen]


def _write(path: Path, text: str) -> None:
    from cluster.files import write_atomic

    def write(file: IO[bytes]) -> None:
        file.write(text.encode("utf-8"))

    write_atomic(path, write)


def _draw_path(run_dir: RunDir) -> Path:
    return run_dir.root / "judge" / "audit.json"


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8", "save the sheet as CSV in UTF-8") from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror})", "name a filled sheet"
        ) from error
