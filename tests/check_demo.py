"""Asserts what the demo must show: `python tests/check_demo.py RUN_DIR`.

1. For at least three of the five agents the 95 % interval of (full system − vanilla) at λ = 1 lies
   above zero and the full system's point is above always-abstain's.
2. At least two agents fail quietly: on the answers they delivered, the better of mean and minimum
   log-probability tells right from wrong with AUROC ≤ 0.75, the correctness head ≥ 0.05 better.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from sklearn.metrics import roc_auc_score

from cluster.run_dir import RunDir

AGENTS, WINNERS, QUIET = 5, 3, 2
LP_MOST, HEAD_ABOVE = 0.75, 0.05


def winners(run_dir: RunDir, lam: float = 1.0) -> dict[str, tuple[bool, str]]:
    """Agent → (shows both claims, a line that says what was found)."""
    table = run_dir.read("intervals")
    table = table.filter(pc.and_(pc.equal(table["lam"], lam), pc.equal(table["system"], "full")))
    rows: dict[tuple[str, str], dict[str, Any]] = {
        (r["agent"], r["statistic"]): r for r in table.to_pylist() if r["stratum"] == "-"
    }
    found = {}
    for agent in sorted({a for a, _ in rows}):
        gain = rows.get((agent, "rs_minus_vanilla"))
        above = rows.get((agent, "rs_minus_abstain"))
        if gain is None or above is None or None in (gain["low"], above["point"]):
            found[agent] = False, "no interval"
            continue
        text = (
            f"full − vanilla {gain['point']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}], "
            f"full − always-abstain {above['point']:+.3f}"
        )
        found[agent] = gain["low"] > 0 and above["point"] > 0, text
    return found


def quiet(run_dir: RunDir, label: str) -> dict[str, tuple[bool, str]]:
    """Agent → (fails quietly and the head hears it, a line that says what was found)."""
    end = {
        r["episode_id"]: r["turns"]
        for r in run_dir.read("episodes").to_pylist()
        if r["end"] == "answered"
    }
    right = {
        r["episode_id"]: r["correct"]
        for r in run_dir.read("labels").to_pylist()
        if r["label"] == label and r["correct"] is not None
    }
    values: dict[str, dict[str, dict[str, float]]] = {}
    for row in run_dir.read("features").to_pylist():
        if end.get(row["episode_id"]) == row["t"]:
            mine = values.setdefault(row["agent"], {}).setdefault(row["episode_id"], {})
            mine |= {"lp_mean": row["lp_mean"], "lp_min": row["lp_min"]}
    for row in run_dir.read("scores").to_pylist():
        if row["head"] == "correctness" and end.get(row["episode_id"]) == row["t"]:
            values[row["agent"]][row["episode_id"]]["head"] = row["logit"]
    found = {}
    for agent, episodes in sorted(values.items()):
        ids = [e for e in episodes if e in right]
        truth = np.array([right[e] for e in ids])
        auroc = {
            name: float(roc_auc_score(truth, [episodes[e][name] for e in ids]))
            for name in ("lp_mean", "lp_min", "head")
        }
        lp = max(auroc["lp_mean"], auroc["lp_min"])
        shows = lp <= LP_MOST and auroc["head"] >= lp + HEAD_ABOVE
        text = (
            f"log-probability {lp:.3f}, correctness head {auroc['head']:.3f} ({len(ids)} answers)"
        )
        found[agent] = shows, text
    return found


def told(what: str, found: dict[str, tuple[bool, str]], needed: int) -> bool:
    """Print one line per agent and the sum; whether enough agents show it."""
    for agent, (shows, text) in found.items():
        print(f"{'yes' if shows else 'no ':3} {agent:14} {text}")
    good = sum(shows for shows, _ in found.values())
    print(f"{good} of {len(found)} agents {what} ({needed} of {AGENTS} needed)")
    return good >= needed and len(found) == AGENTS


def main(path: str, label: str = "typed") -> int:
    """0 when the run shows both."""
    run_dir = RunDir(Path(path))
    gain = told("gain and beat always abstaining at λ = 1", winners(run_dir), WINNERS)
    heard = told("fail quietly and are heard", quiet(run_dir, label), QUIET)
    return 0 if gain and heard else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
