"""Fitted probes as files: coefficients in safetensors, the rest in JSON, both checked by hash.

`NAME.safetensors` holds per part and round `PART.ROUND.{mean, scale, coef, intercept}`, of TF–IDF
`PART.ROUND.{terms, idf, coef, intercept}`, of the task alone both (`weights` for the numbers that
`keys` names); these two in strict mode only, the one that deploys. `NAME.json` says what they read:
scorer, layer, error words, which weights the agent had, how it was split. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sentinel.errors import UserError
from sentinel.probes.cell import Cell
from sentinel.probes.logistic import LogisticProbe
from sentinel.probes.scorers import (
    NEED_ACTIVATIONS,
    Models,
    Scored,
    TaskModels,
    TextModels,
    surface_columns,
)
from sentinel.probes.surface import SURFACE
from sentinel.probes.task_only import TaskProbe
from sentinel.probes.text_probe import TextProbe

FORMAT = 1
_ARRAYS = ("mean", "scale", "coef", "intercept")


@dataclass(frozen=True)
class Probes:
    """Probes read back: `facts` as they were saved, `models` or, of TF–IDF, `texts` by (part,
    round). `tasks`, of the control that reads the task alone, is never deployed."""

    facts: Mapping[str, Any]
    models: Models
    texts: TextModels = field(default_factory=dict)
    tasks: TaskModels = field(default_factory=dict)

    @property
    def deployable(self) -> bool:
        """Whether a live round can be scored."""
        return bool(self.models or self.texts)

    @property
    def scorer(self) -> str:
        """What the rows hold."""
        return str(self.facts["scorer"])

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds that have a probe in part 0, ascending."""
        return tuple(sorted(r for part, r in (*self.models, *self.texts) if part == 0))

    def score(
        self,
        round_: int,
        vector: ArrayLike | None = None,
        surface: ArrayLike | None = None,
        part: int = 0,
        text: str | None = None,
    ) -> float | None:
        """f_r of one live round; None, which passes every gate, where it cannot be had.

        `vector` (d,) is the hidden state at the last generated token, rounded to float16 like the
        ones the probe was fitted on; `surface` (5,) as `surface_features` gives it. Unknown surface
        features are put at their training mean, a missing hidden state gives None. `text`: the
        rendering through the round's action, before its feedback, which TF–IDF reads.
        """
        if (reader := self.texts.get((part, round_))) is not None:
            return None if text is None else reader.score(text)
        probe = self.models.get((part, round_))
        if probe is None:
            return None
        x = np.empty(probe.width)
        if self.scorer in NEED_ACTIVATIONS:
            if vector is None:
                return None
            state = np.asarray(vector, dtype=np.float16)
            x[: len(state)] = state
        if self.scorer in ("surface", "stacking"):
            if surface is None:
                return None
            tail = x[probe.width - len(SURFACE) :]
            tail[:] = surface
            unknown = np.isnan(tail)
            if unknown.any():
                tail[unknown] = probe.mean[probe.width - len(SURFACE) :][unknown]
        f = float(probe.score(x))
        return None if np.isnan(f) else f


def save(folder: Path, cell: Cell, scored: Scored, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write a scorer's facts and, where it is plain coefficients, its probes; returns the facts.

    `settings`: what a run-time needs beside them (error words, prices, gates).
    """
    from safetensors.numpy import save as dump

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{scored.scorer}.safetensors"
    digest = None
    strict = scored.split.mode == "strict"
    texts, tasks = (scored.texts, scored.tasks) if strict else ({}, {})
    if scored.models or texts or tasks:
        named = _named_arrays(texts) | _named_arrays(tasks)
        data = dump(_arrays(scored.models) | named)
        digest = hashlib.sha256(data).hexdigest()
        _write(path, data)
    else:
        path.unlink(missing_ok=True)
    width = next((m.width for m in scored.models.values()), 0)
    facts = {
        "format": FORMAT,
        "benchmark": cell.benchmark,
        "agent": cell.agent,
        "agent_hash": cell.agent_hash,
        "columns": _columns(scored.scorer, width),
        "parts": [p.name for p in scored.split.parts],
        "sha256": digest,
        **scored.facts,
        "settings": dict(settings),
    }
    text = json.dumps({**facts, "hash": _hash(facts)}, sort_keys=True, indent=1, allow_nan=False)
    _write(folder / f"{scored.scorer}.json", (text + "\n").encode())
    return facts


def load(folder: Path, scorer: str) -> Probes:
    """Read a scorer back. Raises UserError for files that are missing, damaged or changed."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as parse

    path = folder / f"{scorer}.json"
    again = "run: sentinel probes"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        digest = facts.pop("hash")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"probes {path} cannot be read ({error})", again) from error
    if facts.get("format") != FORMAT:
        raise UserError(f"probes {path} are of format {facts.get('format')}", again)
    if _hash(facts) != digest:
        raise UserError(f"probes {path} were changed after they were written", again)
    if facts["sha256"] is None:
        return Probes(facts, {})
    weights = folder / f"{scorer}.safetensors"
    try:
        data = weights.read_bytes()
    except OSError as error:
        raise UserError(f"probes {weights} cannot be read ({error.strerror})", again) from error
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise UserError(f"probes {weights} were changed after they were written", again)
    try:
        arrays = parse(data)
        names = sorted({(int(k), int(r)) for k, r in (key.split(".")[:2] for key in arrays)})
        if any(key.endswith(".terms") for key in arrays):
            named = {
                (k, r): {
                    key.rpartition(".")[2]: value
                    for key, value in arrays.items()
                    if key.startswith(f"{k}.{r}.")
                }
                for k, r in names
            }
            if scorer == "task":
                return Probes(facts, {}, {}, {at: TaskProbe.of(a) for at, a in named.items()})
            return Probes(facts, {}, {at: TextProbe.of(a) for at, a in named.items()})
        models = {
            (k, r): LogisticProbe(
                arrays[f"{k}.{r}.mean"],
                arrays[f"{k}.{r}.scale"],
                arrays[f"{k}.{r}.coef"],
                float(arrays[f"{k}.{r}.intercept"][0]),
            )
            for k, r in names
        }
    except (SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"probes {weights} are damaged ({error})", again) from error
    return Probes(facts, models)


def _arrays(models: Models) -> dict[str, Any]:
    out = {}
    for (k, r), probe in sorted(models.items()):
        values = (probe.mean, probe.scale, probe.coef, np.array([probe.intercept]))
        for name, value in zip(_ARRAYS, values, strict=True):
            out[f"{k}.{r}.{name}"] = np.ascontiguousarray(value, dtype=np.float64)
    return out


def _named_arrays(probes: Mapping[tuple[int, int], Any]) -> dict[str, Any]:
    return {
        f"{k}.{r}.{name}": value
        for (k, r), probe in sorted(probes.items())
        for name, value in probe.arrays().items()
    }


def _columns(scorer: str, width: int) -> Sequence[str]:
    if not width or scorer not in (*NEED_ACTIVATIONS, "surface"):
        return []
    surface = surface_columns(scorer, width)
    states = [f"h{i}" for i in range(int((~surface).sum()))]
    return [*states, *(SURFACE if surface.any() else ())]


def _hash(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
