"""What this machine offers, found without importing torch or Ray."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cluster.devices import visible_gpus

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from jobs.sections import SiteConfig

__all__ = ["open_site", "slurm_commands", "visible_gpus"]


def slurm_commands() -> list[str]:
    """Slurm's client commands that are on the path."""
    return [c for c in ("sbatch", "squeue", "sacct", "scontrol") if shutil.which(c)]


def open_site(site: SiteConfig, on: str, **more: Any) -> AbstractContextManager[Cluster]:
    """The cluster that a site's settings describe, as `open_cluster` makes it."""
    from cluster.pool import open_cluster

    gpus = visible_gpus() if site.gpus is None else site.gpus
    memory = site.object_store_mb
    return open_cluster(on, site.cpus, gpus, site.address, object_store_mb=memory, **more)
