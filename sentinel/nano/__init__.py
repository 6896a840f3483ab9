"""Embedded models: five small agents per embedded world, and the tokenizer of each world."""

from __future__ import annotations

from pathlib import Path

from sentinel.errors import UserError

_HERE = Path(__file__).parent


def tokenizer_dir(world: str = "clinic") -> Path:
    """Folder with the tokenizer that the nano models of one world share.

    Raises UserError when no tokenizer ships for it.
    """
    folder = _HERE / "tokenizers" / world
    if not (folder / "tokenizer.json").is_file():
        raise UserError(
            f"no nano tokenizer of world {world!r} (shipped: {', '.join(worlds()) or 'none'})",
            f"run: sentinel train-nano configs/benchmarks/{world}.yaml",
        )
    return folder


def worlds() -> list[str]:
    """Worlds with a tokenizer of their own, sorted."""
    return sorted(p.parent.name for p in (_HERE / "tokenizers").glob("*/tokenizer.json"))


def world_of(name: str) -> str:
    """The world of an agent: its name up to the first hyphen (`clinic-sage` → `clinic`)."""
    return name.partition("-")[0]


def text_world(kind: str) -> str:
    """Whose tokenizer a nano text head reads a benchmark's transcripts with.

    The benchmark's own where one ships, else the hospital's: a byte-level vocabulary knows every
    text, a foreign one only makes it longer.
    """
    return kind if kind in worlds() else "clinic"


def weights_dir(name: str) -> Path:
    """Folder with one agent's `config.json`, `model.safetensors` and `RECIPE.json`.

    Raises UserError when no such agent ships or its weights are missing.
    """
    folder = _HERE / "weights" / name
    if not (folder / "model.safetensors").is_file():
        have = sorted(p.parent.name for p in (_HERE / "weights").glob("*/model.safetensors"))
        raise UserError(
            f"no weights for nano agent {name!r} (shipped: {', '.join(have) or 'none'})",
            f"run: sentinel train-nano configs/benchmarks/{world_of(name)}.yaml",
        )
    return folder
