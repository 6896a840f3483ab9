"""Commands as drivers of a Ray that runs already: named by address, or by `ray job submit`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from collecting import config

from cluster.allocation import driver_environment
from cluster.allocation_env import Allocation, address_towards
from cluster.ports import reserved
from cluster.ray_health import Probe
from cluster.ray_node import NodePlan, NodeProcess
from cluster.ray_temp import TempDir
from cluster.run_dir import RunDir

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
TOKEN = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A Ray of someone's with a dashboard, in processes of its own."""
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    with pytest.MonkeyPatch.context() as patch, reserved(str(os.getpid()), 2) as ports:
        patch.setenv("PYTHONPATH", paths)
        temp = TempDir.make(os.getpid())
        plan = NodePlan(
            allocation=Allocation("1", "1", 0, 1, (), 2, 0, 1000),
            ports=ports,
            ip=address_towards("10.255.255.255"),
            temp_dir=temp.path,
            token=TOKEN,
            object_store_mb=100,
            dashboard=True,
        )
        log = tmp_path_factory.mktemp("ray") / "ray.log"
        node = NodeProcess(plan, log)
        try:
            with Probe(plan.address, 1, driver_environment(plan.address, TOKEN, 0)) as probe:
                deadline = time.monotonic() + 120
                while not probe.ended() and time.monotonic() < deadline:
                    assert not node.ended(), node.cause()
                    time.sleep(0.2)
                assert probe.alive() == 1, probe.cause()
            yield node
        finally:
            node.stop()
            temp.remove()


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A config whose agent answers by a script."""
    path = tmp_path / "run.yaml"
    mapping = config(tmp_path, limit=60).model_dump(mode="json", exclude_none=True)
    path.write_text(yaml.safe_dump(mapping))
    return path


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SENTINEL_RAY"))}
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    return {**kept, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "PYTHONPATH": paths, **more}


def jobs(head: NodeProcess) -> list[dict[str, Any]]:
    """The dashboard's list of jobs."""
    url = f"http://127.0.0.1:{head.plan.ports.dashboard}/api/jobs/"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def test_ray_job_submit_runs_our_entry_point_on_its_own_ray(
    head: NodeProcess, run_file: Path, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{head.plan.ports.dashboard}"
    submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", url]
    submit += ["--submission-id", "sentinel-t", "--metadata-json", '{"slurm_job": "17"}', "--"]
    entry = [sys.executable, "-m", "jobs", "collect", str(run_file), "--run-dir", str(tmp_path)]
    done = subprocess.run(
        submit + entry, env=environment(), capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"joined Ray at {head.plan.address}" in done.stdout
    assert RunDir(tmp_path).table_path("episodes", "clinic", "scripted").exists()
    (job,) = [job for job in jobs(head) if job["submission_id"] == "sentinel-t"]
    assert job["status"] == "SUCCEEDED"
    assert job["metadata"]["slurm_job"] == "17"
    assert not head.ended()


@pytest.mark.parametrize("word", ["auto", "address"])
def test_a_named_ray_is_joined_and_lives_on(
    head: NodeProcess, run_file: Path, tmp_path: Path, word: str
) -> None:
    address = head.plan.address
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "collect", str(run_file), "--run-dir", str(tmp_path / word),
         "--address", "auto" if word == "auto" else address],
        env=environment(**({"RAY_ADDRESS": address} if word == "auto" else {})),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"joined Ray at {address}" in done.stdout
    mine = [job for job in jobs(head) if job["metadata"].get("run_dir") == str(tmp_path / word)]
    assert [(j["metadata"]["run"], j["metadata"]["stage"]) for j in mine] == [("t", "collect")]
    recorded = json.loads(RunDir(tmp_path / word).config_path.read_text())
    assert recorded["site"]["address"] is None  # the next resumes elsewhere
    assert not head.ended()


def test_a_wrong_token_is_one_line(head: NodeProcess, run_file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "collect", str(run_file), "--run-dir", str(tmp_path / "x"),
         "--address", head.plan.address],
        env=environment(RAY_AUTH_TOKEN="f" * 64),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no Ray answers" in done.stderr
    assert "RAY_AUTH_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr
