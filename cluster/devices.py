"""GPUs that this process may use, found without importing torch or Ray."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sentinel.errors import UserError


def visible_gpus(devices: Path = Path("/dev")) -> int:
    """NVIDIA devices that this process may use (`CUDA_VISIBLE_DEVICES` respected)."""
    found = [p for p in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return len(found)
    named = [x for x in allowed.split(",") if x.strip() and x.strip() != "-1"]
    return min(len(named), len(found))


def check(wanted: int, what: str, devices: Path = Path("/dev")) -> None:
    """Raise UserError unless this process sees as many devices as its engine will use.

    An engine that starts its own workers hands them what it sees itself: a replica that holds too
    few, or none, would fail late, or wait for ever.
    """
    seen = visible_gpus(devices)
    if seen < wanted:
        allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
        where = "" if allowed is None else f" (CUDA_VISIBLE_DEVICES={allowed!r})"
        raise UserError(
            f"{what} needs {wanted} CUDA devices and its worker sees {seen}{where}",
            "set device: cpu in the agent's config, lower tensor_parallel, or free the GPUs",
        )
