"""The deployed cascade: one probe per round from fit tasks, and one frozen policy per target.

A folder with `cascade.json` (policies, what they were tested on) and the probes beside it; both
are checked by hash when they are read, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sentinel.cascade.policy import CascadePolicy
from sentinel.errors import UserError
from sentinel.heads.config import CORRECTNESS
from sentinel.probes.export import Probes, load
from sentinel.probes.logistic import sigmoid
from sentinel.probes.scorers import NEED_ACTIVATIONS

if TYPE_CHECKING:
    from sentinel.monitor.text_heads import TextHeads

VERSION = 1
FILE = "cascade.json"


@dataclass(frozen=True)
class CascadeMonitor:
    """`policies` by target ρ*; `agent_hash`: the weights whose hidden states the probes know."""

    benchmark: str
    agent: str
    agent_hash: str
    policies: Mapping[str, CascadePolicy]
    probes: Probes
    heads: TextHeads | None = None
    """The correctness head, where it is the scorer."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The rest of `cascade.json`: what was promised, of which tasks, and `hash`."""

    @property
    def hash(self) -> str:
        """Names this monitor."""
        return str(self.facts["hash"])

    @property
    def reads_hidden(self) -> bool:
        """Whether the scorer reads hidden states."""
        return self.heads is None and self.probes.scorer in NEED_ACTIVATIONS

    @property
    def reads_surface(self) -> bool:
        """Whether the scorer reads the five surface features."""
        return self.heads is None and self.probes.scorer in ("surface", "stacking")

    @property
    def error_words(self) -> tuple[str, ...]:
        """What marks a feedback as an error, as when the scorer was fitted."""
        return tuple(self.probes.facts["settings"]["error_words"])

    def aborts(
        self,
        round_: int,
        target: str,
        vector: ArrayLike | None = None,
        surface: ArrayLike | None = None,
        text: str | None = None,
    ) -> bool:
        """Does gate `round_` abort, after the round's action and before its feedback?

        A score that cannot be had passes. Raises UserError for a target without a policy.
        """
        policy = self.policy(target)
        if not 1 <= round_ <= len(policy.thresholds) or policy.thresholds[round_ - 1] is None:
            return False
        return policy.aborts(round_, self.score(round_, vector, surface, text))

    def score(
        self,
        round_: int,
        vector: ArrayLike | None = None,
        surface: ArrayLike | None = None,
        text: str | None = None,
    ) -> float | None:
        """f_r of one live round, as `Probes.score`; None, which passes every gate, without one."""
        if self.heads is None:
            return self.probes.score(round_, vector, surface, text=text)
        logit = np.nan if text is None else self.heads.episode().logits(text)[CORRECTNESS]
        return None if np.isnan(logit) else float(sigmoid(-logit))

    def policy(self, target: str) -> CascadePolicy:
        """The policy of a target."""
        if target not in self.policies:
            raise UserError(
                f"the monitor has no policy for target {target}",
                f"use one of: {', '.join(self.policies)}",
            )
        return self.policies[target]


def save(
    folder: Path,
    probes: Path,
    scorer: str,
    document: Mapping[str, Any],
    benchmark: str,
    agent: str,
    facts: Mapping[str, Any] | None = None,
) -> str:
    """Write the monitor of a strict document's only cell; returns its hash.

    `probes` is the folder of the fitted coefficients, `document` what `sentinel cascade` found,
    `facts` what else a reader should know: `settings` names the tasks, `dtype` what the model
    computed its hidden states in.
    Raises UserError for paper mode, which exports no monitor, and for a scorer that is no plain
    coefficients.
    """
    if document["mode"] != "strict":
        raise UserError("paper mode exports no monitor", "use strict mode")
    from sentinel.monitor import archive, text_heads

    found = load(probes, scorer)
    head = probes / scorer / "part-0"
    fitted = scorer == "heads" and (head / "head.json").is_file()
    contents, about = text_heads.contents({CORRECTNESS: head}) if fitted else ({}, {})
    if not found.deployable and not fitted:
        raise UserError(
            f"scorer {scorer} of {benchmark}/{agent} has no coefficients to deploy",
            "set cascade.deploy to probe, surface, stacking, tfidf or heads",
        )
    policies = {t["target"]: t["policy"] for c in document["cells"] for t in c["targets"]}
    content = {
        **(facts or {}),
        "version": VERSION,
        "benchmark": benchmark,
        "agent": agent,
        "agent_hash": found.facts["agent_hash"],
        "scorer": scorer,
        "layer": found.facts["layer"],
        "policies": policies,
        "guarantees": {
            t["target"]: t["guarantee"]["text"] for c in document["cells"] for t in c["targets"]
        },
        "probes": _hash({k: v for k, v in found.facts.items() if k != "rounds"}),
    }
    with archive.replacing(folder) as new:
        for name, data in contents.items():
            archive.put(new / name, data)
        for suffix in (".json",) if fitted else (".safetensors", ".json"):
            archive.put(new / f"{scorer}{suffix}", probes / f"{scorer}{suffix}")
        if fitted:
            content |= {**about, "files": {name: _file_hash(new / name) for name in contents}}
        digest = _hash(content)
        text = json.dumps({**content, "hash": digest}, sort_keys=True, indent=1, allow_nan=False)
        archive.put(new / FILE, (text + "\n").encode("ascii"))
    return digest


def read(folder: Path) -> CascadeMonitor:
    """Read a monitor back.

    Raises UserError for files that are missing, damaged, changed, or that do not belong here.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        digest = content.pop("hash")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UserError(
            f"monitor {path} cannot be read ({error})", "run: sentinel search"
        ) from error
    if content.get("version") != VERSION or _hash(content) != digest:
        raise UserError(
            f"monitor {path} was changed, or is of another version", "run: sentinel search"
        )
    from sentinel.monitor import archive, text_heads

    scorer, files = content["scorer"], content.get("files", {})
    coefficients = set() if files else {f"{scorer}.safetensors"}
    archive.refuse_unknown(folder, {FILE, f"{scorer}.json", *coefficients, *files})
    for name, expected in files.items():
        if _file_hash(folder / name) != expected:
            raise UserError(f"monitor {folder}: {name} was changed", "run: sentinel search")
    probes = load(folder, scorer)
    if _hash({k: v for k, v in probes.facts.items() if k != "rounds"}) != content["probes"]:
        raise UserError(f"the probes in {folder} are another monitor's", "run: sentinel search")
    policies = {t: CascadePolicy.from_dict(p) for t, p in content["policies"].items()}
    heads = text_heads.load(folder, content) if files else None
    return CascadeMonitor(
        content["benchmark"],
        content["agent"],
        content["agent_hash"],
        policies,
        probes,
        heads,
        {**content, "hash": digest},
    )


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
