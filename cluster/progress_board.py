"""The progress of a run as Ray sees it: one named actor, its gauges, and a line in its log.

The dashboard shows the actor as `progress`; Prometheus finds the gauges (`ray_sentinel_…`, tags
`run` and `stage`) at every node's metrics port. One actor serves all stages of a run: a process of
its own for each would cost more than short stages take.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)
NAME = "progress"
LINE_SECONDS = 30.0
GAUGES = {
    "items_done": "Items of the stage that are finished",
    "items_total": "Items of the stage in all",
    "items_failed": "Finished items without a result",
    "items_cached": "Items that an earlier session had finished",
    "eta_seconds": "Seconds left at this session's rate",
    "workers": "Replicas of the stage",
    "workers_busy": "Replicas with an item in flight",
    "tokens_per_second": "Generated tokens per second, over the last half minute",
    "spend_usd": "Dollars paid to APIs by this stage",
}
"""Gauge → what it says; Ray puts `ray_sentinel_` before the name."""
_FROM = {
    "items_done": "done",
    "items_total": "total",
    "items_failed": "failed",
    "eta_seconds": "eta_seconds",
}
_FROM_COUNTS = {
    "items_cached": "cached",
    "workers": "replicas",
    "workers_busy": "replicas_busy",
    "tokens_per_second": "tokens_per_second",
    "spend_usd": "spend_usd",
}


def gauge_values(state: Mapping[str, Any]) -> dict[str, float]:
    """What the gauges show for one `progress/<stage>.json`; a number that is unknown is left out.

    >>> gauge_values({"done": 3, "total": 9, "failed": 0, "eta_seconds": None, "counts": {}})
    {'items_done': 3.0, 'items_total': 9.0, 'items_failed': 0.0}
    """
    counts = state.get("counts") or {}
    found = {name: state.get(key) for name, key in _FROM.items()}
    found |= {name: counts.get(key) for name, key in _FROM_COUNTS.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


class Board:
    """The actor. Holds what every stage of the run last said.

    `about`: the run, and where its driver is (`cluster.progress.about`).
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        from ray.util.metrics import Gauge

        self.about = dict(about)
        self._gauges = {
            name: Gauge(f"sentinel_{name}", description=text, tag_keys=("run", "stage"))
            for name, text in GAUGES.items()
        }
        self._stages: dict[str, Mapping[str, Any]] = {}
        self._said: dict[str, float] = {}

    def put(self, state: Mapping[str, Any], line: str) -> None:
        """Show a stage's state (as in `progress/<stage>.json`) and its line."""
        stage = str(state["stage"])
        self._stages[stage] = dict(state)
        tags = {"run": str(self.about["run"]), "stage": stage}
        for name, value in gauge_values(state).items():
            self._gauges[name].set(value, tags=tags)
        now = time.monotonic()
        if state["state"] != "running" or now - self._said.get(stage, -LINE_SECONDS) > LINE_SECONDS:
            self._said[stage] = now
            print(line, flush=True)

    def __repr__(self) -> str:
        """What the dashboard's list of actors says of it."""
        job = self.about.get("slurm_job")
        return f"progress of {self.about['run']}" + (f" in Slurm job {job}" if job else "")

    def get(self) -> dict[str, Mapping[str, Any]]:
        """Stage → what it last said."""
        return self._stages


class Link:
    """A driver's end: sends a stage's state to the board of this Ray, and never waits for it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent: Any = None

    @classmethod
    def open(cls, about: Mapping[str, Any]) -> Link | None:
        """The board of this process's Ray, started if need be; None without Ray."""
        if "ray" not in sys.modules:
            return None
        import ray

        if not ray.is_initialized():
            return None
        try:
            actor = (
                ray.remote(Board)
                .options(name=NAME, num_cpus=0, get_if_exists=True, max_restarts=1)
                .remote(dict(about))
            )
        except (ray.exceptions.RayError, ValueError) as error:
            log.warning("no progress on the dashboard: %s", error)
            return None
        return cls(actor)

    def put(self, state: Mapping[str, Any], line: str, *, last: bool = False) -> None:
        """Send a state, unless the one before is still on its way; the last is always sent."""
        import ray

        try:
            if self._sent is not None and not last:
                done, _ = ray.wait([self._sent], timeout=0)
                if not done:
                    return
            # Once a second: among the tasks of the stages it would be nothing but noise.
            put = self._actor.put.options(enable_task_events=False)
            self._sent = put.remote(dict(state), line)
        except ray.exceptions.RayError as error:  # the work goes on without its picture
            log.warning("no progress on the dashboard: %s", error)
