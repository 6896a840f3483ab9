"""Asserts what the demo must show: `python tests/check_demo.py RUN_DIR`.

For at least three of the five agents the 95 % interval of (full system − vanilla) at λ = 1 lies
above zero and the full system's point is above always-abstain's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc

from cluster.run_dir import RunDir

NEEDED, AGENTS = 3, 5


def winners(run_dir: Path, lam: float = 1.0) -> dict[str, tuple[bool, str]]:
    """Agent → (shows both claims, a line that says what was found)."""
    table = RunDir(run_dir).read("intervals")
    table = table.filter(pc.and_(pc.equal(table["lam"], lam), pc.equal(table["system"], "full")))
    rows: dict[tuple[str, str], dict] = {
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


def main(run_dir: str) -> int:
    """Print one line per agent; 0 when enough agents show it."""
    found = winners(Path(run_dir))
    for agent, (shows, text) in found.items():
        print(f"{'ok  ' if shows else 'FAIL'} {agent:14} {text}")
    good = sum(shows for shows, _ in found.values())
    print(f"{good} of {len(found)} agents show both claims at λ = 1 ({NEEDED} of {AGENTS} needed)")
    return 0 if good >= NEEDED and len(found) == AGENTS else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
