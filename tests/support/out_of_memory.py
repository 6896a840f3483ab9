"""A collection whose worker Ray's memory monitor kills, in a mount namespace of its own.

The monitor reads what a cgroup says of its memory; here that is a file, so that it is full when the
test wants it and no other process of the machine is short of anything. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import collecting
import psutil

from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from jobs import status

CGROUP = Path("/sys/fs/cgroup")
TASKS = 100


def fill(used: float, total: int) -> None:
    """The share of the cgroup's memory that is used."""
    for name, value in (("memory.max", total), ("memory.current", int(used * total))):
        new = CGROUP / f"{name}.new"
        new.write_text(f"{value}\n")
        new.replace(CGROUP / name)  # whoever reads it meanwhile reads a number


def main(folder: Path) -> None:
    """Collect, and be short of memory from the thirtieth episode to the first death."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(CGROUP)], check=True)
    total = psutil.virtual_memory().total // 2
    (CGROUP / "memory.stat").write_text("anon 0\ninactive_file 0\nactive_file 0\n")
    fill(0.1, total)
    run_dir, switches = RunDir(folder / "runs" / "r"), folder / "switches"
    switches.mkdir()
    settings = collecting.config(switches, 0.05, limit=TASKS)

    def short_of_memory(_: list[Path]) -> None:
        fill(0.999, total)
        deadline = time.monotonic() + 60
        metrics = run_dir.metrics_path
        while time.monotonic() < deadline:
            if metrics.exists() and '"death"' in metrics.read_text():
                break
            time.sleep(0.02)
        fill(0.1, total)

    os.environ |= {"RAY_memory_monitor_refresh_ms": "100"}
    watcher = collecting.when_finished(run_dir, 30, short_of_memory)
    with open_cluster("local", cpus=2, object_store_mb=100) as cluster:
        collecting.run(settings, run_dir.root, cluster)
    watcher.join()
    state = status.status(run_dir.root, settings)
    print(json.dumps({"causes": state["stages"][0]["causes"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
