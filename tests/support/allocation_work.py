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


def work() -> None:
    """Join, run tasks, and print what they saw."""
    from cluster.pool import open_cluster

    with open_cluster("local") as cluster:
        gpus = 1 if cluster.gpus else 0
        found = [r for _, r in cluster.map("seen", seen, range(6), num_gpus=gpus)]
        result = {"cpus": cluster.cpus, "gpus": cluster.gpus, "tasks": found}
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
