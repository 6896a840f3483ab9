"""Start a Ray of our own, or join one that was named; end exactly what was started.

`ray` is imported inside functions only: the commands stay fast and `debug` runs need no Ray.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import UserError

log = logging.getLogger(__name__)
PREFIX = "sr"
MAX_TEMP = 40
"""Longest temp dir in characters: Ray's sockets lie below it and may have 107 bytes in all."""
OBJECT_STORE_MB = 512
MIN_OBJECT_STORE_MB = 80
"""Ray refuses less than 75 MiB."""


@dataclass
class RaySession:
    """A Ray that this process uses. `users` counts nested openings within the process."""

    address: str
    temp_dir: Path | None
    """Ours to remove; None when the cluster was joined."""
    dashboard_url: str | None
    users: int = 1


_session: RaySession | None = None


def start_ray(
    cpus: int | None,
    gpus: int = 0,
    *,
    address: str | None = None,
    object_store_mb: int = OBJECT_STORE_MB,
    dashboard: bool = False,
    temp_root: Path | None = None,
) -> RaySession:
    """Start a private Ray with explicit resources, or join `address`.

    Never joins a cluster that was not named, whatever `RAY_ADDRESS` or another user's Ray on this
    machine say. A second call in the same process shares the first one's Ray.

    Raises UserError when Ray cannot start or `address` does not answer.
    """
    global _session
    if address is None:
        _environment()  # before the import: Ray reads its settings then
    import ray

    if ray.is_initialized():
        if _session is None:
            raise UserError(
                "this process already uses a Ray that sentinel did not start",
                "call ray.shutdown() first, or run the command in its own process",
            )
        _session.users += 1
        return _session
    temp_dir = None if address else _temp_dir(temp_root)
    if address is None:
        _require_token()
    try:
        if address is not None:
            context = ray.init(address=address, log_to_driver=False, logging_level="error")
        else:
            context = ray.init(
                address="local",
                num_cpus=cpus if cpus is not None else available_cpus(),
                num_gpus=gpus,
                object_store_memory=max(object_store_mb, MIN_OBJECT_STORE_MB) * 2**20,
                include_dashboard=dashboard,
                dashboard_host="127.0.0.1",
                log_to_driver=False,
                logging_level="error",
                _temp_dir=str(temp_dir),
            )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        ray.shutdown()
        if temp_dir is not None:
            shutil.rmtree(temp_dir, ignore_errors=True)
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if address is not None:
            raise UserError(
                f"no Ray answers at {address}: {cause}",
                "check the address and RAY_AUTH_TOKEN, or leave the address out to start one",
            ) from error
        raise UserError(
            f"Ray did not start: {cause}", "try --on debug, or see the log of `sentinel doctor`"
        ) from error
    url = context.dashboard_url
    _session = RaySession(
        address=context.address_info["gcs_address"],
        temp_dir=temp_dir,
        dashboard_url=f"http://{url}" if url else None,
    )
    return _session


def stop_ray(session: RaySession) -> None:
    """End a Ray that was started here, leave one that was joined, when its last user is done."""
    global _session
    import ray

    session.users -= 1
    if session.users > 0:
        return
    ray.shutdown()
    _session = None
    if session.temp_dir is not None:
        shutil.rmtree(session.temp_dir, ignore_errors=True)


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


def sweep_leftovers(root: Path) -> list[Path]:
    """Remove temp dirs of our Rays whose process is gone; returns what was removed."""
    removed = []
    for folder in root.glob(f"{PREFIX}[0-9]*"):
        match = re.fullmatch(rf"{PREFIX}(\d+)_\w+", folder.name)
        if not match or not folder.is_dir() or folder.is_symlink():
            continue
        if folder.stat().st_uid == os.getuid() and not _alive(int(match[1])):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _temp_dir(root: Path | None) -> Path:
    root = root or Path(os.environ.get("SENTINEL_RAY_TMP") or tempfile.gettempdir())
    if len(str(root)) > MAX_TEMP - 20:
        root = Path("/tmp")
    sweep_leftovers(root)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=root))


def _environment() -> None:
    """What Ray reads at its import and start; stays set, its threads read it until the end."""
    os.environ |= {
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # errors are reported once, by whoever waits
        # Ray retries a task killed for memory for ever by default.
        "RAY_task_oom_retries": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_AUTH_MODE": "token",
    }
    # A token of this process: without one, Ray would leave one in the home directory.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _require_token() -> None:
    """Token authentication even where someone imported Ray before its mode was set."""
    raylet = importlib.import_module("ray._raylet")  # compiled, without type information
    if raylet.get_authentication_mode() != raylet.AuthenticationMode.TOKEN:
        raylet.Config.initialize("")  # reads the environment again
        raylet.AuthenticationTokenLoader.instance().reset_cache()
