"""Which monitors `sentinel score` was asked about, and whether each may read the run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.head_stages import Where
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig


@dataclass(frozen=True)
class Asked:
    """A monitor with its manifest, and the agent of the run that it is to read."""

    folder: Path
    facts: Mapping[str, Any]
    where: Where


def asked(args: argparse.Namespace, root: Path) -> Iterator[Asked]:
    """The monitors that were named, each with what it is to read."""
    from cluster.head_stages import Where
    from sentinel.monitor import archive

    folders = list(dict.fromkeys(f for path in args.monitors for f in _folders(path)))
    several, kept = len(folders) > 1, 0
    for folder in folders:
        facts = archive.read(folder)
        place = facts["benchmark"], facts["agent"]
        wanted = args.benchmark or place[0], args.agent or place[1]
        if several and wanted != place:
            continue  # of several those of that benchmark and agent
        kept += 1
        yield Asked(folder, facts, Where(str(root), *wanted))
    if not kept:
        raise UserError(
            f"none of these {len(folders)} monitors is of {args.benchmark or 'any benchmark'}/"
            f"{args.agent or 'any agent'}",
            "name one monitor to have it read another agent",
        )


def _folders(path: Path) -> list[Path]:
    """The monitor of a folder, or all below it (`RUN`, `RUN/monitor`, …)."""
    from sentinel.monitor import archive

    root = path.expanduser().absolute()
    if (root / archive.MANIFEST).exists():
        return [root]
    below = ("sentinel", "*/sentinel", "*/*/sentinel", "monitor/*/*/sentinel")
    found = [p.parent for b in below for p in sorted(root.glob(f"{b}/{archive.MANIFEST}"))]
    if not found:
        raise UserError(
            f"{root} is no monitor of text heads: it has no {archive.MANIFEST}",
            "name RUN/monitor/BENCHMARK/AGENT/sentinel",
        )
    return found


def check(config: RunConfig, run_dir: RunDir, one: Asked, transfer: str | None) -> None:
    """Raise UserError where this monitor cannot, or without a reason should not, read this run."""
    from jobs.monitor_export import fingerprints, unlike
    from sentinel.monitor import frozen

    where = one.where
    place = f"{where.benchmark}/{where.agent}"
    config.benchmark(where.benchmark)
    config.agent(where.agent)
    if one.facts.get("kind") != frozen.KIND or not one.facts["heads"]:
        raise UserError(f"monitor {one.folder} has no text heads", "name one that has")
    if not run_dir.table_path("episodes", where.benchmark, where.agent).exists():
        raise UserError(
            f"no episodes of {place} were collected in {run_dir.root}",
            f"sentinel collect --run-dir '{run_dir.root}'",
        )
    found = fingerprints(config, run_dir, where.benchmark, where.agent)
    other = unlike(one.facts["fingerprints"], found)
    if other and transfer is None:
        raise UserError(
            f"monitor {one.folder} was not made for {place} of {run_dir.root.name}: another "
            + ", another ".join(other),
            "where that is meant, say why: --transfer REASON",
        )


def enter(run_dir: RunDir, one: Asked, again: str | None) -> None:
    """Enter a look at the held-out pool in its ledger.

    Raises UserError where another monitor was evaluated on it and no reason is given.
    """
    from cluster.ledger import Ledger
    from jobs.calibrate import manifest_hash
    from sentinel.monitor.frozen import read_policy

    policy, _ = read_policy(one.folder)
    Ledger.beside(run_dir.root).record(
        one.where.benchmark,
        manifest_hash(run_dir, one.where.benchmark),
        one.where.agent,
        policy.hash(),
        run=run_dir.root.name,
        again=again,
    )
