"""What a run ran on: code, packages, data, machine (`env.json`). Recorded, never hashed."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from cluster import files
from cluster.run_dir import RunDir

log = logging.getLogger(__name__)
TEMPLATE = "template.json"
MONITOR = "monitor.json"
PACKAGES = (
    "sentinel-suite",
    "duckdb",
    "numpy",
    "openai",
    "pyarrow",
    "pydantic",
    "ray",
    "scikit-learn",
    "scipy",
    "skops",
    "sqlglot",
    "submitit",
    "torch",
    "transformers",
    "vllm",
)


def describe(datasets: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The environment as a JSON-able mapping; `datasets` maps benchmark name → fingerprint."""
    return {
        "at": time.time(),
        "argv": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "packages": {name: _version(name) for name in PACKAGES},
        "sqlite": sqlite3.sqlite_version,
        "git": git_state(Path(__file__).resolve().parents[1]),
        "hardware": hardware(),
        "datasets": dict(datasets or {}),
    }


def record(run_dir: RunDir, datasets: Mapping[str, str] | None = None) -> None:
    """Write `env.json`. A run resumed on other code or another machine keeps both descriptions."""
    new = {**describe(datasets), "templates": _templates(run_dir)}
    if obeyed := _monitors(run_dir):
        new["stop_with"] = obeyed
    with run_dir.lock("env", wait=60):  # processes that share the directory add to it in turn
        old = files.read_json(run_dir.env_path)
        earlier: list[Any] = []
        if old is not None:
            earlier = old.pop("earlier", [])
            new["datasets"] = {**old.get("datasets", {}), **new["datasets"]}
            if _identity(old) != _identity(new):
                earlier = [*earlier, old]
        files.write_json(run_dir.env_path, {**new, "earlier": earlier})


def note_template(run_dir: RunDir, agent: str, engine: Any) -> None:
    """Write down what an engine's chat template does; called by the worker that made the engine.

    `record` puts it into `env.json` (`templates`, by agent). An API has none.
    """
    from sentinel.agent.chat import ChatEncoder
    from sentinel.agent.template_report import inspect_template

    encoder = getattr(engine, "encoder", None)
    if isinstance(encoder, ChatEncoder):
        report = inspect_template(encoder, getattr(engine, "ends", ()))
        log.info("agent %s: %s", agent, "; ".join(report.quirks()) or "a plain chat template")
        files.write_json(run_dir.journals("collect", agent) / TEMPLATE, report.as_dict())


def _templates(run_dir: RunDir) -> dict[str, Any]:
    paths = sorted(run_dir.journals("collect", "").parent.glob(f"agent=*/{TEMPLATE}"))
    names = (files.name_of(path.parent.name.removeprefix("agent=")) for path in paths)
    return dict(zip(names, map(files.read_json, paths), strict=True))


def note_monitor(run_dir: RunDir, benchmark: str, agent: str, facts: Mapping[str, Any]) -> None:
    """Write down which frozen monitor an agent's episodes obey: `stop_with` of `env.json`."""
    path = run_dir.journals("collect", agent) / f"{files.safe_name(benchmark)}.{MONITOR}"
    files.write_json(path, {"benchmark": benchmark, "agent": agent, **facts})


def _monitors(run_dir: RunDir) -> list[Any]:
    paths = sorted(run_dir.journals("collect", "").parent.glob(f"agent=*/*.{MONITOR}"))
    return [files.read_json(path) for path in paths]


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, and a hash of the uncommitted difference; None outside a git checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _git(folder, "diff", "HEAD", "--binary") or ""
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard") or ""
    dirty = bool(diff or untracked)
    text = f"{diff}\0{untracked}".encode("utf-8", "surrogateescape")
    return {
        "commit": commit.strip(),
        "dirty": dirty,
        "diff_sha256": hashlib.sha256(text).hexdigest() if dirty else None,
    }


def hardware() -> dict[str, Any]:
    """CPUs of this process and of the machine, memory in GiB, GPUs by name."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpus_machine": os.cpu_count(),
        "memory_gib": round(pages * size / 2**30, 1),
        "gpus": _gpus(),
    }


def _identity(env: Mapping[str, Any]) -> Any:
    return {k: env.get(k) for k in ("python", "host", "packages", "sqlite", "git", "hardware")}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *args: str) -> str | None:
    # `env`: a hook or a worktree variable of the caller must not point to another repository.
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            capture_output=True,
            env=env,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "surrogateescape")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
