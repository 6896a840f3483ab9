"""`ray start --block` as a child of this process: its command line, its log, and its exact end.

`ray stop` ends every Ray on a node and is never used. `NodeProcess.stop` ends the child's process
group, and whatever carries a mark in its environment. Both, because some of Ray's daemons write
their title over their environment, and its workers may leave the group.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.allocation_env import Allocation, object_store
from cluster.ports import Ports
from cluster.ray_runtime import SETTINGS
from cluster.tied import tied

MARK = "SENTINEL_RAY_MARK"
STOP_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What one node starts: the head where `head_address` is None, else a worker that joins it."""

    allocation: Allocation
    ports: Ports
    ip: str
    temp_dir: Path
    token: str
    object_store_mb: int
    head_address: str | None = None
    dashboard: bool = False

    @property
    def address(self) -> str:
        """The cluster's address, `ip:port`."""
        return self.head_address or f"{self.ip}:{self.ports.gcs}"

    def command(self) -> list[str]:
        """The whole `ray start` line: nothing is left for Ray to guess from the machine."""
        share = self.allocation
        store = object_store(share.memory_mb, self.object_store_mb)
        options: dict[str, object] = {
            "node-ip-address": self.ip,
            "num-cpus": share.cpus,
            "num-gpus": share.gpus,
            "memory": max(share.memory_mb - store, 1) * 2**20,
            "object-store-memory": store * 2**20,
            "temp-dir": self.temp_dir,
            **self.ports.node_options(),
        }
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        if self.head_address is None:
            command.append("--head")
            options |= self.ports.head_options() | {
                "dashboard-host": "127.0.0.1",
                "include-dashboard": "true" if self.dashboard else "false",
            }
        else:
            options["address"] = self.head_address
        command += [f"--{name}={value}" for name, value in options.items()]
        return [*command, "--disable-usage-stats", "--log-style=record", "--log-color=false"]

    def environment(self, env: Mapping[str, str], mark: str) -> dict[str, str]:
        """The environment of Ray's processes and, through them, of every task."""
        return {
            **cleaned(env, self.allocation.gpus),
            **SETTINGS,
            **token_settings(self.token),
            **self.ports.environment(),
            # Ray would wait half a minute for tasks to drain after SIGTERM.
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "PYTHONUNBUFFERED": "1",
            MARK: mark,
        }


class NodeProcess:
    """A running `ray start --block`, its log file and its mark."""

    def __init__(self, plan: NodePlan, log: Path) -> None:
        self.plan, self.log = plan, log
        self.mark = secrets.token_hex(16)
        self._begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                tied(plan.command(), deaf=True),
                env=plan.environment(os.environ, self.mark),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                process_group=0,
            )

    def ended(self) -> bool:
        """Whether Ray is gone."""
        return self.process.poll() is not None

    def cause(self) -> str:
        """Why it ended, in one line: the end of what it wrote."""
        code = self.process.poll()
        return f"ray start ended with exit code {code}: {tail(self.log, self._begin)}"

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End Ray here, and every process that it started; nobody else's.

        Quickly: after `scancel` a job may have few seconds, and nothing in Ray is worth saving.
        """
        for sign in (signal.SIGTERM, *[signal.SIGKILL] * 5):
            left = self.running()
            for process in left:
                with suppress(psutil.Error):
                    process.send_signal(sign)
            psutil.wait_procs(left, timeout=seconds)
            self.process.poll()  # it was among them
            if not self.running():
                break
        self.process.kill()
        self.process.wait()

    def running(self) -> list[psutil.Process]:
        """What Ray runs here, whoever started it and whatever it calls itself."""
        group, session = self.process.pid, os.getsid(0)
        found = marked(self.mark)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.getpgid(process.pid) == group and os.getsid(process.pid) == session:
                    found.append(process)
        return [p for p in set(found) if _lives(p)]


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def marked(mark: str) -> list[psutil.Process]:
    """Processes of this user whose environment carries a mark."""
    found, uid = [], os.getuid()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.uids().real == uid and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def token_settings(token: str) -> dict[str, str]:
    """What a process needs to be let in."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def cleaned(env: Mapping[str, str], gpus: int) -> dict[str, str]:
    """An environment without another Ray's names, and without GPUs that were not given.

    `RAY_lower_case` are a user's settings and stay.
    """
    kept = {k: v for k, v in env.items() if not (k.startswith("RAY_") and k[4:5].isupper())}
    if gpus == 0:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    return kept


def tail(path: Path, begin: int = 0, lines: int = 3) -> str:
    """The last lines of a log from a byte on, as one line; errors before other lines."""
    try:
        with path.open("rb") as file:
            file.seek(max(begin, path.stat().st_size - 65536))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"no log ({error.strerror})"
    found = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    telling = [
        line
        for line in found
        if ("rror" in line or "ailed" in line) and not line.startswith(("raise ", "File "))
    ]
    return " | ".join((telling or found)[-lines:])[-600:] or "its log is empty"
