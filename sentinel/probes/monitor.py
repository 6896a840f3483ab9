"""The deployed cascade: one probe per round from fit tasks, and one frozen policy per target.

A folder with `cascade.json` (policies, what they were tested on) and the probes beside it; both
are checked by hash when they are read, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from sentinel.cascade.policy import CascadePolicy
from sentinel.errors import UserError
from sentinel.probes.export import Probes, load

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
        return policy.aborts(round_, self.probes.score(round_, vector, surface, text=text))

    def policy(self, target: str) -> CascadePolicy:
        """The policy of a target."""
        if target not in self.policies:
            raise UserError(
                f"the monitor has no policy for target {target}",
                f"use one of: {', '.join(self.policies)}",
            )
        return self.policies[target]


def save(
    folder: Path, probes: Path, scorer: str, document: Mapping[str, Any], benchmark: str, agent: str
) -> str:
    """Write the monitor of a strict document's only cell; returns its hash.

    `probes` is the folder of the fitted coefficients, `document` what `sentinel cascade` found.
    Raises UserError for paper mode, which exports no monitor, and for a scorer that is no plain
    coefficients.
    """
    if document["mode"] != "strict":
        raise UserError("paper mode exports no monitor", "use strict mode")
    found = load(probes, scorer)
    if not found.deployable:
        raise UserError(
            f"scorer {scorer} of {benchmark}/{agent} has no coefficients to deploy",
            "set cascade.deploy to probe, surface, stacking or tfidf",
        )
    policies = {t["target"]: t["policy"] for c in document["cells"] for t in c["targets"]}
    content = {
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
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in (".safetensors", ".json"):
        partial = folder / f".{scorer}{suffix}.{os.getpid()}"
        shutil.copyfile(probes / f"{scorer}{suffix}", partial)
        partial.replace(folder / f"{scorer}{suffix}")
    digest = _hash(content)
    text = json.dumps({**content, "hash": digest}, sort_keys=True, indent=1, allow_nan=False)
    partial = folder / f".{FILE}.{os.getpid()}"
    partial.write_text(text + "\n", encoding="ascii")
    partial.replace(folder / FILE)
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
    from sentinel.monitor.archive import refuse_unknown

    scorer = content["scorer"]
    refuse_unknown(folder, {FILE, f"{scorer}.json", f"{scorer}.safetensors"})
    probes = load(folder, scorer)
    if _hash({k: v for k, v in probes.facts.items() if k != "rounds"}) != content["probes"]:
        raise UserError(f"the probes in {folder} are another monitor's", "run: sentinel search")
    policies = {t: CascadePolicy.from_dict(p) for t, p in content["policies"].items()}
    return CascadeMonitor(
        content["benchmark"], content["agent"], content["agent_hash"], policies, probes
    )


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
