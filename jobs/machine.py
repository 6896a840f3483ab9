"""What this machine offers, found without importing torch or Ray."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path


def visible_gpus() -> int:
    """NVIDIA devices that this process may use (`CUDA_VISIBLE_DEVICES` respected)."""
    devices = [p for p in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return len(devices)
    named = [x for x in allowed.split(",") if x.strip() and x.strip() != "-1"]
    return min(len(named), len(devices))


def slurm_commands() -> list[str]:
    """Slurm's client commands that are on the path."""
    return [c for c in ("sbatch", "squeue", "sacct", "scontrol") if shutil.which(c)]
