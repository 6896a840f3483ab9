"""Two Ray nodes on this machine, in a process of their own: one is lost, or an engine uses both.

    python two_nodes.py FOLDER lost | span | vllm

Prints one JSON object as its last line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def two_nodes(**each: int) -> Iterator[Any]:
    """Ray's own test cluster of two nodes with these resources, away from anybody else's."""
    from cluster import ray_runtime
    from cluster.ray_temp import TempDir

    temp = TempDir.make(os.getpid())
    os.environ |= ray_runtime.SETTINGS
    os.environ |= {"RAY_TMPDIR": str(temp.path), "RAY_health_check_period_ms": "500"}
    (temp.path / "ray").mkdir()  # where the test cluster notes its address
    from ray.cluster_utils import Cluster

    settings = {"include_dashboard": False, "object_store_memory": 80 * 2**20, **each}
    nodes = Cluster(initialize_head=True, head_node_args={**settings, "temp_dir": str(temp.path)})
    try:
        nodes.add_node(**settings)
        yield nodes
    finally:
        nodes.shutdown()
        temp.remove()


def lost(folder: Path) -> dict[str, Any]:
    """A collection on two nodes, of which one goes with its replica in the middle."""
    import collecting

    from cluster.pool import open_cluster
    from cluster.run_dir import RunDir
    from jobs import status

    run_dir, switches = RunDir(folder / "runs" / "r"), folder / "switches"
    switches.mkdir()
    settings = collecting.config(switches, 0.05, limit=100)
    with two_nodes(num_cpus=1) as nodes, open_cluster("local", address=nodes.address) as cluster:
        (second,) = nodes.worker_nodes
        watcher = collecting.when_finished(
            run_dir, 30, lambda _: nodes.remove_node(second, allow_graceful=False)
        )
        collecting.run(settings, run_dir.root, cluster)
        watcher.join()
    state = status.status(run_dir.root, settings)
    return {"causes": state["stages"][0]["causes"]}


class Spanning:
    """Holds an engine whose core is a driver of its own, as vLLM's is."""

    async def core(self, code: str) -> str:
        """What a child process prints that starts a worker in each bundle."""
        import pickle

        import ray

        from cluster.span import lead_to_ray

        lead_to_ray()
        group = pickle.dumps(ray.util.get_current_placement_group())
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, group.hex(), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        return out.decode()

    def config(self) -> dict[str, Any]:
        """What vLLM makes of its place, asked in a thread as the engine asks it."""
        from concurrent.futures import ThreadPoolExecutor

        def made() -> dict[str, Any]:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.executor.abstract import Executor

            from sentinel.nano import weights_dir

            config = AsyncEngineArgs(
                model=str(weights_dir("clinic-scout")),
                skip_tokenizer_init=True,
                tensor_parallel_size=4,
                distributed_executor_backend="ray",
            ).create_engine_config()
            group = config.parallel_config.placement_group
            return {
                "bundles": None if group is None else group.bundle_count,
                "uses_ray": Executor.get_class(config).uses_ray,
            }

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(made).result()


CORE = """
import json, pickle, sys
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Place
ray.init(log_to_driver=False)
group = pickle.loads(bytes.fromhex(sys.argv[1]))
def seen():
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_accelerator_ids()["GPU"]
worker = ray.remote(num_cpus=0, num_gpus=1)(seen)
places = [Place(group, i) for i in range(group.bundle_count)]
print(json.dumps(ray.get([worker.options(scheduling_strategy=p).remote() for p in places])))
"""


@contextmanager
def spanning() -> Iterator[tuple[Any, dict[str, Any]]]:
    """A replica with the devices of both nodes, placed as a collection places it."""
    import ray

    from cluster.placement import Reservation, cluster_nodes, share
    from cluster.pool import open_cluster

    each = {"num_cpus": 2, "num_gpus": 2}
    with two_nodes(**each) as nodes, open_cluster("local", address=nodes.address):
        size = share(cluster_nodes(0, 0), 3, gpus=4, can_span=True)
        places = Reservation(size)
        asyncio.run(places.take("w/a"))
        actor = ray.remote(Spanning).options(**places.options(0)).remote()
        yield actor, {"replicas": size.replicas, "spans": size.spans}
        places.free()


def span(folder: Path) -> dict[str, Any]:
    """Its core's workers, and the devices that are left."""
    import ray

    with spanning() as (actor, size):
        found = json.loads(ray.get(actor.core.remote(CORE)))
        return {**size, "workers": found, "left": ray.available_resources().get("GPU", 0)}


def vllm(folder: Path) -> dict[str, Any]:
    """The configuration that vLLM makes there."""
    import ray

    with spanning() as (actor, _):
        found: dict[str, Any] = ray.get(actor.config.remote())
        return found


if __name__ == "__main__":
    result = {"lost": lost, "span": span, "vllm": vllm}[sys.argv[2]](Path(sys.argv[1]))
    print(json.dumps(result), flush=True)
