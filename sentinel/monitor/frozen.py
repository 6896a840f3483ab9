"""The final artifact of one agent: both heads, maps, thresholds, estimator, and where it is from.

`monitor/BENCHMARK/AGENT/sentinel/`: `policy.json` (isotonic knots, gate, stop per λ, selection),
`estimator.skops` where the hybrid delivers, `HEAD/{head.json, model.safetensors}` and
`tokenizer/tokenizer.json`; the manifest names fingerprints, features and training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.decide.policy import Policy
from sentinel.errors import UserError
from sentinel.monitor import archive, text_heads, trees
from sentinel.monitor.play import Monitor
from sentinel.tables import FEATURES

if TYPE_CHECKING:
    from sentinel.agent.react import Dialect
    from sentinel.probes.monitor import CascadeMonitor

KIND = "sentinel"
POLICY, ESTIMATOR = "policy.json", "estimator.skops"
CASCADE = "cascade.json"


def save(
    folder: Path,
    policy: Policy,
    heads: Mapping[str, Path],
    dialect: Dialect,
    facts: Mapping[str, Any],
) -> str:
    """Freeze a policy with the heads it was fitted on; returns the monitor's hash.

    `heads`: name → folder of the fitted final head; `facts`: benchmark, agent, `fingerprints`,
    `training`. An earlier folder is replaced as a whole. Raises UserError for heads that cannot be
    read, and for an estimator that this version could not read again.
    """
    contents, about = text_heads.contents(heads)
    contents[POLICY] = (policy.to_json() + "\n").encode("ascii")
    if (trained := policy.archive()) is not None:
        trees.load(trained)
        contents[ESTIMATOR] = trained
    manifest = {
        "kind": KIND,
        "dialect": asdict(dialect),
        "features": list(FEATURES),
        "lambdas": list(policy.stops),
        **about,
        **facts,
    }
    return archive.write(folder, contents, manifest)


def load(folder: Path | str, device: str = "cpu") -> Monitor | CascadeMonitor:
    """Read a monitor folder of either kind; every file is checked by hash first.

    `device`: where encoder heads run. Raises UserError for a folder that is no monitor, that lacks
    or has one file too many, that holds a changed one or a pickle, or that this version cannot
    read.
    """
    root = Path(folder).expanduser().absolute()
    if (root / archive.MANIFEST).exists():
        return _sentinel(root, device)
    if (root / CASCADE).exists():
        from sentinel.probes.monitor import read

        return read(root)
    within = sorted(p.name for p in root.glob("*/") if {*_names(p)} & {archive.MANIFEST, CASCADE})
    raise UserError(
        f"{root} is no monitor: it has neither {archive.MANIFEST} nor {CASCADE}",
        f"name {root}/{within[0]}" if within else "name RUN/monitor/BENCHMARK/AGENT/sentinel",
    )


def read_policy(root: Path) -> tuple[Policy, dict[str, Any]]:
    """Policy and manifest of a Sentinel folder whose files are all checked, without its heads.

    Raises UserError as `load` does.
    """
    manifest = archive.read(root)
    if manifest.get("kind") != KIND:
        raise UserError(f"monitor {root} is of kind {manifest.get('kind')}", archive.AGAIN)
    if manifest.get("features") != list(FEATURES):
        raise UserError(f"monitor {root} reads other features than this version", archive.AGAIN)
    model = None
    if ESTIMATOR in manifest["files"]:
        model = trees.load((root / ESTIMATOR).read_bytes())
    policy = Policy.from_json((root / POLICY).read_text(encoding="ascii"), model)
    if policy.selection.chosen == "hybrid" and model is None:
        raise UserError(f"monitor {root} lacks the estimator that delivers", archive.AGAIN)
    return policy, manifest


def _sentinel(root: Path, device: str) -> Monitor:
    policy, manifest = read_policy(root)
    return Monitor(policy, text_heads.load(root, manifest, device), manifest)


def _names(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir()]
