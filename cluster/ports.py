"""Ports of one Ray on one node: a run of free ones that belongs to one job while it lives.

The search starts at a place that the job's number gives, so that jobs which share a node rarely
meet. Where they do, a reservation decides: an abstract socket named after each unit of ports, which
the kernel takes back with its holder and which is seen by every user of the machine.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sentinel.errors import UserError

FIRST, LAST = 10240, 32767
"""Below 32768, where Linux takes the ports of outgoing connections from."""
UNIT = 128
UNITS = (LAST + 1 - FIRST) // UNIT
FIXED = 16
"""Ports of a run that go to named services; the rest is for worker processes."""
WORKERS_PER_CPU = 4


@dataclass(frozen=True, slots=True)
class Ports:
    """A run of ports from `base` on; what each is for."""

    base: int
    count: int

    @property
    def gcs(self) -> int:
        """The head's address."""
        return self.base

    @property
    def dashboard(self) -> int:
        """Web page and job API."""
        return self.base + 8

    def node_options(self) -> dict[str, int]:
        """Options of `ray start` on every node."""
        return {
            "node-manager-port": self.base + 1,
            "object-manager-port": self.base + 2,
            "runtime-env-agent-port": self.base + 3,
            "dashboard-agent-grpc-port": self.base + 4,
            "dashboard-agent-listen-port": self.base + 5,
            "metrics-export-port": self.base + 6,
            "min-worker-port": self.base + FIXED,
            "max-worker-port": self.base + self.count - 1,
        }

    def head_options(self) -> dict[str, int]:
        """Further options of the head."""
        return {
            "port": self.gcs,
            "ray-client-server-port": self.base + 7,
            "dashboard-port": self.dashboard,
        }

    def environment(self) -> dict[str, str]:
        """Ports of the head that no option names."""
        return {
            "AUTOSCALER_METRIC_PORT": str(self.base + 9),
            "DASHBOARD_METRIC_PORT": str(self.base + 10),
        }

    def fixed(self) -> range:
        """The ports of named services."""
        return range(self.base, self.base + FIXED)

    def taken(self) -> list[int]:
        """Which of the services' ports someone listens on now."""
        return [port for port in self.fixed() if not is_free(port)]


def first_unit(key: str) -> int:
    """Where the search of a job begins; jobs with neighbouring numbers begin far apart."""
    digits = "".join(c for c in key if c.isdigit())
    return int(digits or 0) * 37 % UNITS


def units_for(cpus: int) -> int:
    """Units that the workers of so many CPUs need."""
    return -(-(FIXED + 32 + WORKERS_PER_CPU * cpus) // UNIT)


@contextmanager
def reserved(key: str, cpus: int, *, after: Ports | None = None) -> Iterator[Ports]:
    """A free run of ports for the time of the block; `after`: not that one, a later one.

    Raises UserError when all runs are taken.
    """
    wide = units_for(cpus)
    start = first_unit(key) if after is None else (after.base - FIRST) // UNIT + wide
    for step in range(UNITS):
        unit = (start + step) % UNITS
        if unit + wide > UNITS:
            continue
        locks = _reserve(range(unit, unit + wide))
        if locks is None:
            continue
        try:
            ports = Ports(FIRST + unit * UNIT, wide * UNIT)
            if ports.taken():
                continue
            yield ports
            return
        finally:
            for lock in locks:
                lock.close()
    raise UserError(
        f"no {wide * UNIT} ports between {FIRST} and {LAST} are free on {socket.gethostname()}",
        "run on another node (sbatch --exclude), or end what holds them",
    )


def is_free(port: int) -> bool:
    """Whether nobody listens on a TCP port, on any address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections that just ended may linger on it; only a listener is in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _reserve(units: range) -> list[socket.socket] | None:
    """A lock per unit, or none at all."""
    locks: list[socket.socket] = []
    for unit in units:
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # A name after a NUL is no file: it lives in the network namespace, as ports do.
            lock.bind(f"\0sentinel-ports-{FIRST + unit * UNIT}")
        except OSError as error:
            for held in (*locks, lock):
                held.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        locks.append(lock)
    return locks
