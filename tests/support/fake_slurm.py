"""Slurm's commands as small scripts, for what a healthy lab does not say: banners, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """Put `name=shell text` first on the path; names that are not given stay as they are."""
    folder.mkdir(exist_ok=True)
    for name, text in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
