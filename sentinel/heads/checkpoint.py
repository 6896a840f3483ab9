"""A fit's state on disk, one folder per epoch: what a killed fit goes on from.

`epoch-0003/` holds model, optimiser and random states as the strategy wrote them, the kept weights,
`progress.json`, and `manifest.json` with a sha256 of each; it is made under a temporary name and
renamed, so a folder of that name is whole or was damaged later. The newest two are left. A torch
room.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from sentinel.heads.config import HeadFailure
from sentinel.heads.strategy import Strategy

log = logging.getLogger(__name__)
KEPT = 2
MANIFEST = "manifest.json"
_NONE, _CORRUPT = -1.0, -2.0


class Checkpoints:
    """Those of one fit. `signature` says what the fit is made of: others are not gone on from.

    Every process makes one over the same folder and calls the same methods in the same order.
    """

    def __init__(self, folder: Path, signature: str, strategy: Strategy) -> None:
        self.folder, self.signature, self.strategy = Path(folder), signature, strategy

    def save(
        self, epoch: int, progress: dict[str, Any], kept: dict[str, torch.Tensor] | None
    ) -> None:
        """Write an epoch: `progress` (JSON) and the kept weights (None: no epoch is kept yet)."""
        first, scratch = self.strategy.rank == 0, self.folder / f"epoch-{epoch:04d}.tmp"
        if first:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
        self._wait()  # for the folder
        self.strategy.save(scratch)
        self._wait()  # for everyone's files
        if not first:
            return
        if kept is not None:
            save_file(kept, scratch / "kept.safetensors")
        _write_json(scratch / "progress.json", progress)
        hashes = {str(p.relative_to(scratch)): _flushed_hash(p) for p in _files(scratch)}
        _write_json(scratch / MANIFEST, {"signature": self.signature, "sha256": hashes})
        target = self.folder / f"epoch-{epoch:04d}"
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        for old in self._epochs()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self) -> tuple[dict[str, Any], dict[str, torch.Tensor] | None] | None:
        """Restore the newest epoch into the strategy: its `progress` and kept weights.

        None where there is nothing to go on from; what belongs to another fit is logged and
        dropped. Raises HeadFailure for a damaged checkpoint, which is set aside: the next try goes
        on from the one before it.
        """
        # One process looks and decides: what the others would find changes under their hands.
        found, cause = self._newest() if self.strategy.rank == 0 else (0.0, "")
        epoch = float(self.strategy.sum(np.array([found]))[0])
        if epoch == _NONE:
            return None
        if epoch == _CORRUPT:
            raise HeadFailure(cause or f"a checkpoint in {self.folder} is corrupt")
        place = self.folder / f"epoch-{int(epoch):04d}"
        self.strategy.load(place)
        kept = place / "kept.safetensors"
        progress = json.loads((place / "progress.json").read_text(encoding="utf-8"))
        return progress, load_file(kept) if kept.exists() else None

    def _newest(self) -> tuple[float, str]:
        """The epoch to go on from, or a word for none or corrupt, and what is wrong."""
        for path in self.folder.glob("*.tmp"):  # of a process that was killed while it wrote
            shutil.rmtree(path, ignore_errors=True)
        for path in reversed(self._epochs()):
            manifest, cause = _checked(path)
            if cause is not None:
                aside = path.with_name(f"{path.name}.corrupt")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                before = [int(p.name[6:]) for p in self._epochs()]
                onward = f"goes on after epoch {before[-1]}" if before else "begins anew"
                return _CORRUPT, (
                    f"checkpoint {path} is corrupt: {cause}; it was set aside as {aside.name}, and "
                    f"the next run of this fit {onward}"
                )
            if manifest["signature"] == self.signature:
                return float(path.name[6:]), ""
            log.warning("checkpoint %s is of other data, settings or workers: dropped", path)
            shutil.rmtree(path, ignore_errors=True)
        return _NONE, ""

    def _epochs(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("epoch-*") if p.name[6:].isdigit())

    def _wait(self) -> None:
        """Until every process is here."""
        self.strategy.sum(np.zeros(1))


def signature(parts: list[Any]) -> str:
    """Hash of what a fit is made of: arrays, and values that JSON can hold."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype != object:
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            value = part.tolist() if isinstance(part, np.ndarray) else part
            found.update(json.dumps(value, sort_keys=True).encode())
    return found.hexdigest()


def _checked(folder: Path) -> tuple[dict[str, Any], str | None]:
    """A checkpoint's manifest, and what is wrong with it."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        expected = dict(manifest["sha256"])
        for name in expected:
            if _hash(folder / name) != expected[name]:
                return {}, f"{name} is not what was written"
        return {"signature": manifest["signature"]}, None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, f"{type(error).__name__}: {error}"


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flushed_hash(path: Path) -> str:
    """The hash of a file that has reached the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return _hash(path)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    with path.open("rb") as file:
        os.fsync(file.fileno())
