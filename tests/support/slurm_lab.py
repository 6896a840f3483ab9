"""The throw-away Slurm of slurm/lab: started once per test session, ended with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LAB = Path(__file__).parents[2] / "slurm" / "lab"


class NoLab(Exception):
    """This machine cannot hold a lab; the message is the reason."""


@contextmanager
def running_lab(*shared: Path, arguments: tuple[str, ...] = ()) -> Iterator[Path]:
    """Start a lab and end it afterwards; its folder. `shared`: folders of /tmp its nodes see."""
    root = Path(tempfile.mkdtemp(prefix="slab"))
    command = [str(LAB / "start"), "--lab", str(root), "--owner", str(os.getpid()), *arguments]
    for folder in (*shared, Path(sys.prefix)):
        command += ["--share", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode == 4:
            raise NoLab(done.stderr.strip())
        if done.returncode:
            raise RuntimeError(f"slurm/lab/start: exit {done.returncode}: {done.stderr}")
        yield root
    finally:
        stop = [str(LAB / "stop"), "--lab", str(root)]
        subprocess.run(stop, capture_output=True, timeout=120, check=False)
        shutil.rmtree(root, ignore_errors=True)


def config_file(lab: Path) -> Path:
    """What SLURM_CONF must name."""
    return lab / "etc" / "slurm.conf"


def node_tmp(lab: Path, node: str) -> Path:
    """That node's own /tmp, seen from outside."""
    return lab / "nodes" / node / "tmp"
