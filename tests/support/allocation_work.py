"""What a job does on its Ray: say where tasks run and which devices they see, or wait."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time


def seen(item: int) -> dict[str, object]:
    """Where this task runs; long enough that the next goes elsewhere."""
    import ray

    time.sleep(0.5)
    return {
        "item": item,
        "host": socket.gethostname(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "ids": ray.get_gpu_ids(),
    }


class Spanning:
    """An engine that starts one worker per device of its placement group, as vLLM does."""

    def workers(self) -> list[dict[str, object]]:
        """What each of them sees."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = ray.util.get_current_placement_group()
        places = [PlacementGroupSchedulingStrategy(group, i) for i in range(group.bundle_count)]
        task = ray.remote(num_cpus=1, num_gpus=1)(seen)
        started = [task.options(scheduling_strategy=p).remote(i) for i, p in enumerate(places)]
        return ray.get(started)


def span(devices: int) -> list[dict[str, object]]:
    """The workers of an engine on the devices of several machines."""
    import ray

    from cluster.placement import cluster_nodes, spans
    from cluster.span import Span

    assert spans(cluster_nodes(0, 0), devices)
    places = Span(devices)
    places.take("engine")
    try:
        actor = ray.remote(Spanning).options(**places.options()).remote()
        return ray.get(actor.workers.remote())
    finally:
        places.free()


def work() -> None:
    """Join, run tasks, and print what they saw."""
    from cluster.pool import open_cluster

    with open_cluster("local") as cluster:
        gpus = 1 if cluster.gpus else 0
        found = [r for _, r in cluster.map("seen", seen, range(6), num_gpus=gpus)]
        result = {"cpus": cluster.cpus, "gpus": cluster.gpus, "tasks": found}
        if gpus:
            result["span"] = span(cluster.gpus)
        print("RESULT " + json.dumps(result), flush=True)


def hold() -> None:
    """Print the address, then wait for a signal."""
    stops = (signal.SIGTERM, signal.SIGUSR2)

    def stop(number: int, frame: object) -> None:
        for each in stops:  # Slurm and rank 0 both send it
            signal.signal(each, signal.SIG_IGN)
        sys.exit(number)

    for each in stops:
        signal.signal(each, stop)
    print("HOLDS " + os.environ["SENTINEL_RAY_ADDRESS"], flush=True)
    time.sleep(600)
