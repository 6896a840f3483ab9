"""What this machine offers, found without importing torch or Ray."""

from __future__ import annotations

import shutil

from cluster.devices import visible_gpus

__all__ = ["slurm_commands", "visible_gpus"]


def slurm_commands() -> list[str]:
    """Slurm's client commands that are on the path."""
    return [c for c in ("sbatch", "squeue", "sacct", "scontrol") if shutil.which(c)]
