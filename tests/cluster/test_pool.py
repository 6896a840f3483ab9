from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import work_items

from cluster.pool import Cluster, ItemError, open_cluster
from cluster.stages import check_importable
from sentinel.errors import UserError


@pytest.fixture
def debug_cluster() -> Iterator[Cluster]:
    with open_cluster("debug") as cluster:
        yield cluster


@pytest.fixture(params=["debug", "local"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    name = "debug_cluster" if request.param == "debug" else "ray_cluster"
    found: Cluster = request.getfixturevalue(name)
    return found


class Count:
    def __init__(self) -> None:
        self.done = self.failed = 0

    def advance(self, n: int = 1, failed: int = 0) -> None:
        self.done += n
        self.failed += failed


def test_every_item_comes_back_with_its_result(cluster: Cluster) -> None:
    count = Count()
    found = dict(cluster.map("square", work_items.square, range(20), progress=count))
    assert found == {i: i * i for i in range(20)}
    assert (count.done, count.failed) == (20, 0)
    assert list(cluster.map("square", work_items.square, [])) == []


def test_a_failed_item_is_an_item_error_and_the_rest_goes_on(cluster: Cluster) -> None:
    count = Count()
    found = dict(cluster.map("picky", work_items.picky, range(4), progress=count))
    assert found[0] == 0
    assert found[3] == 3
    assert isinstance(found[1], ItemError)
    assert (found[1].kind, found[1].cause) == ("error", "ValueError: one is odd")
    assert "picky" in found[1].trace
    assert isinstance(found[2], ItemError)
    assert (found[2].kind, found[2].cause) == ("user", "two is missing; bring it")
    with pytest.raises(UserError, match="two is missing"):
        found[2].reraise()
    assert (count.done, count.failed) == (4, 2)


def test_completion_order_and_bounded_flight(ray_cluster: Cluster) -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for i in range(30):
            taken.append(i)
            yield i

    finished = []
    for item, _ in ray_cluster.map("slow", work_items.slowest_first, source()):
        assert len(taken) - len(finished) <= 4
        finished.append(item)
    assert sorted(finished) == list(range(30))
    assert finished[0] != 0


def test_a_caller_that_stops_early_leaves_nothing_running(ray_cluster: Cluster) -> None:
    mapped = ray_cluster.map("square", work_items.square, range(1000))
    next(mapped)
    mapped.close()  # type: ignore[attr-defined]
    assert dict(ray_cluster.map("square", work_items.square, [5])) == {5: 25}


def test_a_dead_worker_is_tried_again_and_named_when_it_dies_on(
    ray_cluster: Cluster, tmp_path: Path
) -> None:
    path = str(tmp_path / "mark")
    assert dict(ray_cluster.map("die_once", work_items.die_once, [path])) == {path: "alive"}
    ((_, result),) = ray_cluster.map("die", work_items.die, [0])
    assert isinstance(result, ItemError)
    assert result.kind == "died"
    assert "worker process died" in result.cause


def test_threads_follow_the_cpus_of_a_task(ray_cluster: Cluster) -> None:
    for cpus in (2, 1):
        assert dict(ray_cluster.map("t", work_items.threads, [0], num_cpus=cpus)) == {0: str(cpus)}


def test_what_never_fits_is_refused_at_once(ray_cluster: Cluster) -> None:
    with pytest.raises(UserError, match="wants 3 CPUs"):
        list(ray_cluster.map("x", work_items.square, [1], num_cpus=3))
    with pytest.raises(UserError, match="1 GPUs per task"):
        list(ray_cluster.map("x", work_items.square, [1], num_gpus=1))


def test_large_results_pass_the_object_store(ray_cluster: Cluster) -> None:
    for rows, data in ray_cluster.map("big", work_items.make_big, [30_000_000] * 8):
        assert isinstance(data, bytes)
        assert len(data) == rows


def test_only_importable_functions_travel() -> None:
    check_importable(work_items.square)
    with pytest.raises(TypeError, match="module-level"):
        check_importable(lambda x: x)

    def nested(x: int) -> int:
        return x

    with pytest.raises(TypeError, match="module-level"):
        check_importable(nested)
    nested.__module__, nested.__qualname__ = "jobs.label", "nested"
    with pytest.raises(TypeError, match=r"jobs\.label"):
        check_importable(nested)


def test_unknown_place_is_a_user_error() -> None:
    with pytest.raises(UserError, match="use one of: local, debug"):
        open_cluster("moon").__enter__()


OUT_OF_MEMORY = """
import work_items
from cluster.pool import open_cluster
with open_cluster("local", cpus=1, object_store_mb=100) as cluster:
    for _, result in cluster.map("hog", work_items.hog, [50]):
        print(result.kind, result.cause, sep="|")
"""


@pytest.mark.slow
def test_a_worker_killed_for_memory_is_named() -> None:
    root = Path(__file__).resolve().parents[2]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env={
            **kept,
            "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests' / 'support'}",
            "RAY_memory_usage_threshold": "0.001",
            "RAY_memory_monitor_refresh_ms": "100",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "oom|the worker was killed: the machine ran out of memory\n" in done.stdout
