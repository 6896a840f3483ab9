"""The `gpu` extra resolves with its constraints; nothing of it is downloaded or installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints" / "gpu.txt").read_text().split()
    if re.fullmatch(r"[\w.-]+==[\w.]+", line)
)
NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|Max retries|Name or service|Temporary failure|ProxyError"
)


def requirements() -> list[str]:
    """What `pip install .[gpu]` asks for, read from pyproject.toml: nothing is built here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted: list[str] = project["dependencies"] + project["optional-dependencies"]["gpu"]
    return wanted


def test_the_constraints_pin_public_versions_of_what_must_agree() -> None:
    assert set(PINS) == {"deepspeed", "ray", "torch", "transformers", "vllm"}
    asked = {re.split(r"[\[>=<!~ ]", r)[0] for r in requirements()}
    assert set(PINS) <= asked


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_gpu_extra_resolves(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    command += ["--quiet", "--retries", "2", "--report", str(report)]
    command += ["-c", str(ROOT / "constraints" / "gpu.txt"), *requirements()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=560)
    except subprocess.TimeoutExpired:
        pytest.skip("the package registry is too slow")
    if done.returncode and NO_NETWORK.search(done.stderr):
        pytest.skip("the package registry cannot be reached")
    assert done.returncode == 0, done.stderr[-2000:]
    found = {
        item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"]
        for item in json.loads(report.read_text())["install"]
    }
    assert {name: found.get(name) for name in PINS} == PINS
    assert any(name.startswith("nvidia-cudnn") for name in found), "torch came without CUDA"
