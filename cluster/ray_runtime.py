"""Start a Ray of our own, or join one that was named; end exactly what was started.

`ray` is imported inside functions only: the commands stay fast and `debug` runs need no Ray.
"""

from __future__ import annotations

import importlib
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.ray_temp import TempDir
from sentinel.errors import UserError

ADDRESS_ENV = "SENTINEL_RAY_ADDRESS"
"""Set by us for a command that is to join the Ray of its allocation; no one else's name."""
AUTO = "auto"
RAY_JOB_ENV = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray's job runner (`ray job submit`) for the entry point that it starts."""
SETTINGS = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # errors are reported once, by whoever waits
    # Ray retries a task killed for memory for ever by default.
    "RAY_task_oom_retries": "1",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "180",  # on a loaded machine one minute is too short
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # A node that imports its Python from a busy shared disk needs longer than Ray's 30 s.
    "RAY_raylet_start_wait_time_s": "120",
}
"""What every Ray process reads from its environment."""
OBJECT_STORE_MB = 512
MIN_OBJECT_STORE_MB = 80
"""Ray refuses less than 75 MiB."""
TOKEN_FILE = "token"
"""In a private Ray's temp dir, where there is a dashboard to show it to."""
CHECK_SECONDS = 60.0
ATTEMPTS = 3
BUSY = ("timed out during startup", "No node info found for head node")
"""Ray gives up on a slow node after 30 s, with these words; the next start finds files cached."""


@dataclass
class RaySession:
    """A Ray that this process uses. `users` counts nested openings within the process."""

    address: str
    temp: TempDir | None
    """Ours to remove; None when the cluster was joined."""
    dashboard_url: str | None
    users: int = 1

    @property
    def temp_dir(self) -> Path | None:
        """Where a Ray of ours keeps its files."""
        return None if self.temp is None else self.temp.path


_session: RaySession | None = None


def start_ray(
    cpus: int | None,
    gpus: int = 0,
    *,
    address: str | None = None,
    object_store_mb: int = OBJECT_STORE_MB,
    dashboard: bool = False,
    temp_root: Path | None = None,
    metadata: Mapping[str, str] | None = None,
) -> RaySession:
    """Start a private Ray with explicit resources, or join the one that `named_address` finds.

    Never joins a cluster that was not named, whatever `RAY_ADDRESS` or another user's Ray on this
    machine say. A second call in the same process shares the first one's Ray. `metadata` goes to
    the dashboard's list of jobs.

    Raises UserError when Ray cannot start, `address` does not answer, or the workers of a joined
    cluster cannot import this code.
    """
    global _session
    address = named_address(address)
    os.environ |= SETTINGS  # before the import: Ray reads its settings then
    if address is None:
        _own_token()
    import ray

    if ray.is_initialized():
        if _session is None:
            raise UserError(
                "this process already uses a Ray that sentinel did not start",
                "call ray.shutdown() first, or run the command in its own process",
            )
        _session.users += 1
        return _session
    job = ray.job_config.JobConfig(metadata={k: str(v) for k, v in (metadata or {}).items()})
    options: dict[str, Any] = {
        "job_config": job,
        "log_to_driver": False,
        "logging_level": "error",
    }
    if address is None:
        _session = _start(cpus, gpus, object_store_mb, dashboard, temp_root, options)
    else:
        _session = _join(address, options)
    return _session


def _start(
    cpus: int | None,
    gpus: int,
    object_store_mb: int,
    dashboard: bool,
    temp_root: Path | None,
    options: dict[str, Any],
) -> RaySession:
    import ray

    temp = TempDir.make(os.getpid(), temp_root)
    _require_token()
    options |= {
        "num_cpus": cpus if cpus is not None else available_cpus(),
        "num_gpus": gpus,
        "object_store_memory": max(object_store_mb, MIN_OBJECT_STORE_MB) * 2**20,
        "include_dashboard": dashboard,
        "dashboard_host": "127.0.0.1",
        "_temp_dir": str(temp.path),
    }
    for attempt in range(ATTEMPTS):
        try:
            context = ray.init(address="local", **options)
            break
        except BaseException as error:
            ray.shutdown()
            if any(sign in str(error) for sign in BUSY) and attempt + 1 < ATTEMPTS:
                continue
            temp.remove()
            if not isinstance(error, Exception):
                raise
            raise UserError(
                f"Ray did not start: {_first_line(error)}",
                "try --on debug, or see the log of `sentinel doctor`",
            ) from error
    if dashboard:
        token = temp.path / TOKEN_FILE
        token.touch(0o600)
        token.write_text(os.environ["RAY_AUTH_TOKEN"])
    return _opened(context, temp)


def _join(address: str, options: dict[str, Any]) -> RaySession:
    import ray

    if address.startswith(("ray://", "http")):
        raise UserError(
            f"{address} is no Ray to join from here: a driver must run on a node of the cluster",
            f"name its host:port, or: ray job submit --address {address} -- sentinel run CONFIG",
        )
    if address == os.environ.get(ADDRESS_ENV):  # the head of our allocation, on this very node
        options["_node_ip_address"] = address.rpartition(":")[0]
    try:
        context = ray.init(address=address, **options)
    except Exception as error:  # Ray raises nothing more exact
        ray.shutdown()
        raise UserError(
            f"no Ray answers at {address}: {_first_line(error)}",
            "check the address and RAY_AUTH_TOKEN, or leave the address out to start one",
        ) from error
    try:
        _check_workers()
    except BaseException:
        ray.shutdown()
        raise
    return _opened(context, None)


def _opened(context: Any, temp: TempDir | None) -> RaySession:
    url = context.dashboard_url
    return RaySession(
        address=context.address_info["gcs_address"],
        temp=temp,
        dashboard_url=f"http://{url}" if url else None,
    )


def named_address(address: str | None = None) -> str | None:
    """The Ray that someone named for this process: the argument, or what our own allocation or
    Ray's job runner set; None to start one.

    `auto` means the same without an argument, and RAY_ADDRESS as well; with neither there is
    nothing to join. Raises UserError then.
    """
    if address not in (None, "", AUTO):
        return address
    found = os.environ.get(ADDRESS_ENV)
    if not found and (address == AUTO or RAY_JOB_ENV in os.environ):
        # Under `ray job submit` the runner sets it; elsewhere it may be a stranger's.
        found = os.environ.get("RAY_ADDRESS")
        found = None if found == AUTO else found
    if not found and address == AUTO:
        raise UserError(
            "--address auto, but no Ray is named here (RAY_ADDRESS is not set)",
            "name it as --address HOST:PORT, or leave it out to start one",
        )
    return found or None


def where_code_is() -> str:
    """The folder of this package on a worker."""
    return str(Path(__file__).parent)


def _check_workers() -> None:
    """Every node of a joined cluster imports the code that this process runs.

    Raises UserError naming a node that does not.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=1)(where_code_is)
    asked = {
        task.options(
            name="check",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(): node["NodeManagerHostname"]
        for node in ray.nodes()
        if node["Alive"]
    }
    remedy = "install the same sentinel there (`pip install -e` on a shared disk), then run again"
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=CHECK_SECONDS)
    for reference in ready:
        try:
            found = ray.get(reference)
        except ray.exceptions.RayError as error:
            raise UserError(
                f"workers on {asked[reference]} cannot import sentinel: {_first_line(error)}",
                remedy,
            ) from error
        if found != where_code_is():
            raise UserError(
                f"workers on {asked[reference]} import another sentinel: {found}, not "
                f"{where_code_is()}",
                remedy,
            )
    if late:
        raise UserError(
            f"no worker starts on {asked[late[0]]} within {CHECK_SECONDS:g} s",
            "look at that node on the dashboard, or name another Ray",
        )


def stop_ray(session: RaySession) -> None:
    """End a Ray that was started here, leave one that was joined, when its last user is done."""
    global _session
    import ray

    session.users -= 1
    if session.users > 0:
        return
    ray.shutdown()
    _session = None
    if session.temp is not None:
        session.temp.remove()


def told(session: RaySession) -> list[str]:
    """What a person is told about a session: how to see its dashboard, or what was joined."""
    if session.temp_dir is None:
        return [f"joined Ray at {session.address}"]
    if session.dashboard_url is None:
        return []
    port = session.dashboard_url.rpartition(":")[2]
    return dashboard_lines(port, str(session.temp_dir / TOKEN_FILE))


def dashboard_lines(port: int | str, token_file: str, host: str | None = None) -> list[str]:
    """What a person needs to see the dashboard: its address, the token, and a tunnel to it."""
    return [
        f"dashboard: http://127.0.0.1:{port} on {host or socket.gethostname()} (its token: "
        f"{token_file})",
        f"  from elsewhere: ssh -L 8265:127.0.0.1:{port} {host or socket.gethostname()}, then "
        "http://127.0.0.1:8265",
    ]


def _first_line(error: BaseException) -> str:
    return next((x.strip() for x in str(error).splitlines() if x.strip()), type(error).__name__)


def available_cpus() -> int:
    """CPUs this process may use: the allocation's (affinity, cgroup quota), not the machine's."""
    return max(1, min(len(os.sched_getaffinity(0)), _quota()))


def _quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Whole CPUs of a container's quota; a large number where there is none."""
    try:
        quota, period = path.read_text().split()
        return int(quota) // int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup v2, or the quota is "max"
        return 2**16


def _own_token() -> None:
    """Token authentication with a token of this process, unless the user set one.

    Without a token in the environment Ray would leave one in the home directory.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _require_token() -> None:
    """Token authentication even where someone imported Ray before its mode was set."""
    raylet = importlib.import_module("ray._raylet")  # compiled, without type information
    if raylet.get_authentication_mode() != raylet.AuthenticationMode.TOKEN:
        raylet.Config.initialize("")  # reads the environment again
        raylet.AuthenticationTokenLoader.instance().reset_cache()
