"""A rank of a Slurm step: `python allocation_rank.py FOLDER BAD_RANK COMMAND …`.

Forms the allocation's Ray and runs the command on it. The Ray of rank BAD_RANK (-1: none) is told
to use a folder that is not there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cluster.allocation import run_in_allocation
from cluster.ray_node import NodePlan
from sentinel.errors import UserError


def main(folder: str, bad_rank: str, *command: str) -> int:
    """Exit code of the command; 2 with one line where Ray did not start."""
    if os.environ["SLURM_PROCID"] == bad_rank:
        good = NodePlan.command
        NodePlan.command = lambda self: [*good(self), "--plasma-directory=/nowhere"]
    try:
        return run_in_allocation(
            [sys.executable, "-u", *command], job_folder=Path(folder), object_store_mb=100
        )
    except UserError as error:
        print(f"rank {os.environ['SLURM_PROCID']}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
