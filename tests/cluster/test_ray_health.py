from __future__ import annotations

import os
import socket
import time

import pytest

from cluster import ray_runtime
from cluster.pool import Cluster
from cluster.ray_health import Probe, Pulse
from sentinel.errors import UserError


def test_a_probe_counts_the_nodes_of_a_running_ray(ray_cluster: Cluster) -> None:
    env = {**os.environ, ray_runtime.ADDRESS_ENV: ray_cluster.session.address}
    with Probe(ray_cluster.session.address, 1, env) as probe:
        deadline = time.monotonic() + 60
        while not probe.ended() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert probe.alive() == 1, probe.cause()


def test_a_probe_waits_for_a_head_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Probe(f"127.0.0.1:{port}", 1, os.environ) as probe:
        time.sleep(0.5)
        assert not probe.ended()
        assert probe.alive() == 0
    assert probe.ended()


def test_a_head_that_falls_silent_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        pulse = Pulse(f"127.0.0.1:{server.getsockname()[1]}", silence=0.2)
        for _ in range(4):
            pulse.check()
            time.sleep(0.1)
    pulse.check()
    time.sleep(0.3)
    with pytest.raises(UserError, match="is gone"):
        pulse.check()
