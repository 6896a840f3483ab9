"""Embedded models: five small agents per embedded world, and the tokenizer they share."""

from __future__ import annotations

from pathlib import Path

from sentinel.errors import UserError

_HERE = Path(__file__).parent


def tokenizer_dir() -> Path:
    """Folder with the tokenizer that every nano model shares."""
    return _HERE / "tokenizer"


def weights_dir(name: str) -> Path:
    """Folder with one agent's `config.json`, `model.safetensors` and `RECIPE.json`.

    Raises UserError when no such agent ships or its weights are missing.
    """
    folder = _HERE / "weights" / name
    if not (folder / "model.safetensors").is_file():
        have = sorted(p.parent.name for p in (_HERE / "weights").glob("*/model.safetensors"))
        raise UserError(
            f"no weights for nano agent {name!r} (shipped: {', '.join(have) or 'none'})",
            "run: sentinel train-nano configs/benchmarks/clinic.yaml",
        )
    return folder
