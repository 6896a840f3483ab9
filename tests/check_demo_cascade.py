"""Asserts what the cascade's demo must show: `python -P tests/check_demo_cascade.py RUN_DIR`.

1. On at least two of the five agents the probe's AUROC at some round is ahead of the surface
   features and of the task alone by ≥ 0.03 each, within equal depth, both intervals above zero.
2. In paper mode, at every agent and target, mean test recall is not below the target by more than
   one standard deviation of the splits plus the margin's 0.02.
3. Nothing in paper mode is called guaranteed; what strict mode guarantees held on its own sample.
4. Success rates of the five agents lie between 20 % and 70 %.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sentinel.report import probe_auc, run_cascade
from sentinel.report.load import Run, load
from sentinel.report.load_cascade import merged

AGENTS, AHEAD = 5, 2
ROOM = 0.02
RATES = (0.2, 0.7)


def ahead(run: Run) -> bool:
    """The first claim, a line per agent."""
    found = probe_auc.claims(run)
    for r in found:
        print(
            f"{'yes' if r['shows'] else 'no ':3} {r['agent']:20} round {r['round']}: probe − "
            f"surface {r['surface']:+.3f} [{_end(r['surface_low'])}, {_end(r['surface_high'])}], "
            f"− task only {r['task']:+.3f} [{_end(r['task_low'])}, {_end(r['task_high'])}]"
            f"{'' if r['matched'] else ' (not matched)'}"
        )
    good = sum(r["shows"] and r["matched"] for r in found)
    print(f"{good} of {len(found)} agents show more in the hidden state ({AHEAD} needed)")
    return good >= AHEAD and len(found) == AGENTS


def keeps(run: Run) -> bool:
    """The second claim."""
    document = merged(run.cascades, "paper", str(run.config["cascade"]["main"]))
    if document is None or len(document["cells"]) != AGENTS:
        print("no: paper mode lacks cells")
        return False
    fine = True
    for cell in document["cells"]:
        for row in cell["seeds"]["summary"]:
            if row["allocation"] != "cascade" or row["recall_mean"] is None:
                continue
            short = float(row["target"]) - row["recall_mean"]
            if short > (row["recall_sd"] or 0) + ROOM:
                print(f"no  {cell['cell']} at {row['target']}: recall {row['recall_mean']:.3f}")
                fine = False
    print(f"{'yes' if fine else 'no'}: mean test recall keeps to its targets")
    return fine


def promises(run: Run) -> bool:
    """The third claim."""
    strict = merged(run.cascades, "strict")
    paper = merged(run.cascades, "paper")
    if strict is None or paper is None or len(strict["cells"]) != AGENTS:
        print("no: strict mode lacks cells")
        return False
    loose = [t for c in paper["cells"] for t in c["targets"] if t["guarantee"]["guaranteed"]]
    broken = kept = 0
    for cell in strict["cells"]:
        for t in cell["targets"]:
            found = t["guarantee"]
            kept += found["guaranteed"]
            if found["guaranteed"] and found["kept"] < float(t["target"]) * found["successes"]:
                broken += 1
    print(f"{kept} strict policies carry a guarantee, {broken} of them broken on their own sample")
    return not loose and not broken


def rates(run: Run) -> bool:
    """The fourth claim."""
    first = [r for r in run_cascade.alive_rows(run) if r["round"] == 1]
    fine = len(first) == AGENTS
    for r in first:
        rate = r["successes"] / (r["successes"] + r["failures"])
        inside = RATES[0] <= rate <= RATES[1]
        print(f"{'yes' if inside else 'no ':3} {r['agent']:20} succeeds in {100 * rate:.1f} %")
        fine &= inside
    return fine


def _end(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def main(path: str) -> int:
    """0 when the run shows all four."""
    run = load(Path(path))
    return 0 if all([ahead(run), keeps(run), promises(run), rates(run)]) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
