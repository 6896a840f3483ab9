"""The frozen monitor of one agent: every threshold and map that the calibration pool fixed.

A policy read back from JSON decides exactly as the one that was fitted: floats are written as their
shortest exact text, "never" and "always" are words, and no NaN or Infinity is ever written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.calibrate import IsotonicMap, logit
from sentinel.decide import estimator
from sentinel.decide.estimator import Selection
from sentinel.decide.gate import Gate
from sentinel.decide.stop import Stop
from sentinel.decide.table import Floats, Prefixes
from sentinel.errors import UserError

VERSION = 1
_MAPS = ("prefix_map", "head_map", "delivery_map", "unanswerable_map")


@dataclass(frozen=True)
class Policy:
    """Thresholds and maps; a map that was refused (one class) is None and named in `flags`.

    `prefix_map` head logit → outcome at any t (for stops); `delivery_map` selected estimator at T;
    `head_map` head logit at T (equal to `delivery_map` where the head delivers);
    `unanswerable_map` for the exact bar. `stops`: λ text → s_λ. `counts`: what it was fitted on.
    """

    agent: str
    gate_budget: str
    gate: Gate
    selection: Selection
    prefix_map: IsotonicMap | None
    head_map: IsotonicMap | None
    delivery_map: IsotonicMap | None
    unanswerable_map: IsotonicMap | None
    stops: Mapping[str, Stop]
    flags: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    model_hash: str | None = None
    sklearn: str | None = None
    model: Any = field(default=None, compare=False, repr=False)

    def prefix_p(self, pool: Prefixes) -> Floats:
        """Calibrated value of every snapshot, (N,); NaN without a score or a map."""
        return _mapped(self.prefix_map, pool.score)

    def delivery_score(self, pool: Prefixes) -> Floats:
        """Logit of the selected estimator at T, (E,)."""
        if self.selection.chosen == "head":
            return pool.score[pool.end]
        if self.model is None:
            raise UserError(
                "this policy delivers with a hybrid estimator that was not loaded",
                "read it with Policy.load from the folder that holds estimator.skops",
            )
        if pool.features is None:
            raise UserError(
                f"the hybrid estimator needs the columns {', '.join(pool.missing_features)}",
                "add the ten features to the table",
            )
        return estimator.hybrid_score(self.model, pool)

    def delivery_p(self, pool: Prefixes) -> Floats:
        """Calibrated probability of the selected estimator at T, (E,); NaN without a map."""
        return _mapped(self.delivery_map, self.delivery_score(pool))

    @staticmethod
    def unanswerable_logit(pool: Prefixes) -> Floats:
        """Answerability logit of every snapshot, positive = unanswerable, (N,)."""
        return -logit(pool.p_answerable)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the hybrid's trees stay outside and are named by their hash."""
        return {
            "version": VERSION,
            "agent": self.agent,
            "gate_budget": self.gate_budget,
            "gate": self.gate.to_dict(),
            "selection": asdict(self.selection),
            **{name: m.to_dict() if (m := getattr(self, name)) else None for name in _MAPS},
            "stops": {lam: stop.to_dict() for lam, stop in self.stops.items()},
            "flags": list(self.flags),
            "counts": dict(self.counts),
            "model_hash": self.model_hash,
            "sklearn": self.sklearn,
        }

    def to_json(self) -> str:
        """Canonical JSON text."""
        return canonical(self.to_dict())

    @classmethod
    def from_json(cls, text: str, model: Any = None) -> Policy:
        """Inverse of `to_json`; `model` is the hybrid estimator where one delivers.

        Raises UserError for another version, or a model other than the one that was frozen.
        """
        data = json.loads(text)
        if data.get("version") != VERSION:
            raise UserError(f"policy of version {data.get('version')}", "fit it again")
        if model is not None and estimator.fingerprint(model) != data["model_hash"]:
            raise UserError(
                "the estimator is not the one this policy was frozen with", "fit it again"
            )
        maps = {n: IsotonicMap.from_dict(data[n]) if data[n] else None for n in _MAPS}
        return cls(
            agent=data["agent"],
            gate_budget=data["gate_budget"],
            gate=Gate.from_dict(data["gate"]),
            selection=Selection(**data["selection"]),
            stops={lam: Stop.from_dict(stop) for lam, stop in data["stops"].items()},
            flags=tuple(data["flags"]),
            counts=data["counts"],
            model_hash=data["model_hash"],
            sklearn=data["sklearn"],
            model=model,
            **maps,
        )

    def hash(self) -> str:
        """Identity of the monitor for the held-out ledger: sha256 of its canonical JSON.

        The stops are left out: each follows from the rest, the calibration pool and its λ, so that
        reading one more λ is not another monitor.
        """
        data = self.to_dict()
        del data["stops"]
        return hashlib.sha256(canonical(data).encode("ascii")).hexdigest()

    def save(self, folder: Path) -> None:
        """Write `policy.json` and, where a hybrid delivers, `estimator.skops`."""
        folder.mkdir(parents=True, exist_ok=True)
        data = self.archive()
        if data is not None:
            (folder / "estimator.skops").write_bytes(data)
        (folder / "policy.json").write_text(self.to_json() + "\n", encoding="ascii")

    def archive(self) -> bytes | None:
        """The hybrid estimator as a skops archive; None where the head delivers."""
        return None if self.model is None else estimator.dump(self.model)

    @classmethod
    def load(cls, folder: Path) -> Policy:
        """Inverse of `save`."""
        path = folder / "estimator.skops"
        model = estimator.load(path.read_bytes()) if path.is_file() else None
        return cls.from_json((folder / "policy.json").read_text(encoding="utf-8"), model)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; NaN and Infinity raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _mapped(map_: IsotonicMap | None, scores: Floats) -> Floats:
    return np.full(len(scores), np.nan) if map_ is None else map_(scores)
