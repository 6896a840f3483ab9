"""`sweep:` in a run config: one run directory per combination of settings, `runs/NAME/sweep-…`.

A directory is named after its settings alone, so a further value adds a run and moves none. Every
element decides the held-out pool once; the ledger counts each, with the sweep as its reason.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from jobs import config_files
from jobs.config import RunConfig
from sentinel.errors import UserError


def settings(config: RunConfig) -> list[dict[str, Any]]:
    """The combinations of a sweep, key path → value; the last key varies fastest."""
    keys = list(config.sweep)
    return [dict(zip(keys, values, strict=True)) for values in product(*config.sweep.values())]


def name(chosen: Mapping[str, Any]) -> str:
    """The folder of one combination: `sweep-heads.seed=0,decide.gate_budget=0.01`."""
    from cluster.files import safe_name
    from cluster.ledger import SWEEP

    parts = (f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in chosen.items())
    # Quoting is `safe_name`'s; a percent sign is not for Slurm's names of logs.
    return (
        safe_name(SWEEP + ",".join(parts).replace("~", "%7E"))
        .replace("%3D", "=")
        .replace("%2C", ",")
        .replace("%", "~")
    )


def elements(config: RunConfig, root: Path) -> list[tuple[Path, RunConfig]]:
    """(run directory, config) of every combination, all checked.

    Raises UserError for a setting that a combination does not allow, or for one written twice.
    """
    found: dict[Path, RunConfig] = {}
    for chosen in settings(config):
        raw = config.model_dump(mode="json")
        raw["sweep"] = {}
        for key, value in chosen.items():
            config_files.apply(raw, key.split("."), value)
        where = ", ".join(f"{k}={v}" for k, v in chosen.items())
        one = RunConfig.from_mapping(raw, where=f"sweep element {where}")
        reason = config.again or f"sweep {config.name}: {where}"
        place = root / name(chosen)
        if place in found:
            raise UserError(f"the sweep names {where} twice", "write each value once")
        found[place] = one.model_copy(update={"again": reason})
    if not found:
        raise UserError("the sweep has no combination", "give each key at least one value")
    return list(found.items())


def run(config: RunConfig, root: Path) -> int:
    """Run the elements one after the other; 3 and a summary when some did not finish."""
    from cluster.run_dir import RunDir
    from jobs.stages import recordable, run_stages

    todo = elements(config, root)
    root.mkdir(parents=True, exist_ok=True)
    faults: dict[str, str] = {}
    with RunDir(root).lock():
        RunDir(root).prepare(recordable(config))
        for number, (place, one) in enumerate(todo, start=1):
            print(f"sweep {number}/{len(todo)}: {place.name}", flush=True)
            try:
                if run_stages(one, place, one.stages):
                    faults[place.name] = "parts are missing (see above)"
            except UserError as error:
                faults[place.name] = str(error)
            except Exception as error:  # a bug in one element leaves the others alone
                traceback.print_exc()
                faults[place.name] = f"{type(error).__name__}: {error}"
    print(f"sweep {config.name}: {len(todo) - len(faults)} of {len(todo)} finished")
    for element, cause in faults.items():
        print(f"sentinel: failed: {element}: {cause}", file=sys.stderr)
    return 3 if faults else 0
