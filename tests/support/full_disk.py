"""A collection on a disk that gets full, and again when there is room; in a mount namespace.

Prints one JSON object: exit codes of both runs, what the first said, and the episodes it kept. The
finished run directory is copied to FOLDER/copy.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import collecting

TASKS = 100


def main(folder: Path) -> None:
    disk, switches = folder / "disk", folder / "switches"
    disk.mkdir()
    switches.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)], check=True)
    raw = collecting.config(switches, 0.0, limit=TASKS).model_dump(mode="json")
    raw["agents"][0]["factory"] = "troubled_replies:make"
    config = folder / "config.json"
    config.write_text(json.dumps(raw))  # JSON is YAML
    command = [sys.executable, "-m", "jobs", "collect", str(config), "--on", "debug"]
    command += ["--run-dir", str(disk / "run")]
    # The pools' manifests lie beside the runs: on the same disk.
    env = {**os.environ, "SENTINEL_CACHE": os.environ.get("SENTINEL_CACHE", str(folder / "cache"))}
    first = subprocess.run(command, env=env, capture_output=True, text=True)
    run_dir = collecting.RunDir(disk / "run")
    kept = collecting.finished(run_dir, "scripted")
    subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
    second = subprocess.run(command, env=env, capture_output=True, text=True)
    shutil.copytree(disk / "run", folder / "copy")
    print(second.stderr, file=sys.stderr)
    codes = [first.returncode, second.returncode]
    print(json.dumps({"codes": codes, "first": first.stderr, "kept": kept}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
