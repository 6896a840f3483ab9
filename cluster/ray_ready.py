"""Wait until a Ray has all its nodes: `python ray_ready.py ADDRESS NODES`.

A process of its own, so that the one that starts the cluster never becomes a driver of it. Prints
the number of nodes alive whenever it changes; ends with 0 when all are. Whoever starts it sets the
deadline. Needs nothing but Ray.
"""

from __future__ import annotations

import socket
import sys
import time

POLL = 0.3


def main(address: str, nodes: int) -> int:
    """Returns when the cluster is whole; the last line printed says how many nodes there are."""
    while not answers(address):
        time.sleep(POLL)
    import ray

    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error")
            break
        except (ConnectionError, RuntimeError):  # it listens, but is not ready
            time.sleep(POLL)
    seen = 0
    while True:
        alive = sum(bool(node["Alive"]) for node in ray.nodes())
        if alive != seen:
            seen = alive
            print(alive, flush=True)
        if alive >= nodes:
            return 0
        time.sleep(POLL)


def answers(address: str) -> bool:
    """Whether someone listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
