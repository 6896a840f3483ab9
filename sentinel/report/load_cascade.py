"""The abort cascades of a run as the report reads them: documents, facts of the scorers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.errors import UserError


@dataclass(frozen=True, slots=True)
class Cascade:
    """One agent on one benchmark: what the search found per mode (as `sentinel cascade --json`
    prints it), and per mode and scorer how it was split, scored and fitted."""

    benchmark: str
    agent: str
    documents: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Mapping[str, Mapping[str, Any]]]


def cascades(run_dir: Path) -> list[Cascade]:
    """Every cascade of a run, in order of names; [] where there is none."""
    found = []
    for folder in sorted(p for p in (run_dir / "probes").glob("*/*") if p.is_dir()):
        facts: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("*/*.json")):
            facts.setdefault(path.parent.name, {})[path.stem] = _json(path)
        if not facts:
            continue
        # Folder names may be escaped; the names inside the files are the names.
        first = next(iter(next(iter(facts.values())).values()))
        beside = run_dir / "cascade" / folder.parent.name / folder.name
        documents = {
            mode: _json(path)
            for mode in ("paper", "strict")
            if (path := beside / f"{mode}.json").is_file()
        }
        found.append(Cascade(str(first["benchmark"]), str(first["agent"]), documents, facts))
    return found


def merged(found: Sequence[Cascade], mode: str, scorer: str | None = None) -> dict[str, Any] | None:
    """The cells of all cascades in one mode as one document, of one scorer where it is named; None
    where there is none. Only cells searched under the same settings as the first are in it."""
    documents = [c.documents[mode] for c in found if mode in c.documents]
    if not documents:
        return None
    cells = [
        cell
        for document in documents
        if document["settings"] == documents[0]["settings"]
        for cell in document["cells"]
        if scorer is None or cell["scorer"] == scorer
    ]
    return {**documents[0], "cells": cells} if cells else None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error})",
            "let its stage make it again: sentinel run --run-dir DIR",
        ) from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object", "remove it and run its stage again")
    return value
