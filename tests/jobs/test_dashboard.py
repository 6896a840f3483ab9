"""A run as Ray's dashboard shows it, to a program and to a person, while it works."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chromium
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EPISODES = 48
FOLDS = 2
FITS = 2 * 2 * (FOLDS + 1)
"""Agents × heads × (folds, and one of all)."""
EXPAND = """(() => {
  const icons = [...document.querySelectorAll('svg')];
  const box = icons.findIndex((icon) => icon.dataset.testid === 'CheckBoxOutlineBlankIcon');
  icons[box + 1].dispatchEvent(new MouseEvent('click', {bubbles: true}));
})()"""
"""Opens the bar of all tasks: the arrow is the icon after the box `Hide finished`."""
BARS = "document.body.innerText.split('Hide finished')[1].split('Logs')[0]"


@dataclass
class Watched:
    """A run that is held still in its middle, and what its dashboard said until then."""

    url: str
    token: str
    told: str
    summaries: list[dict[str, dict[str, int]]] = field(default_factory=list)
    actors: set[str] = field(default_factory=set)

    def ask(self, path: str) -> Any:
        """The JSON of a path of the dashboard."""
        request = urllib.request.Request(
            f"{self.url}/{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as page:
            return json.load(page)

    def look(self) -> dict[str, dict[str, int]]:
        """Name → state → number of tasks, now."""
        found = self.ask("api/v0/tasks/summarize?summary_by=func_name")["data"]["result"]
        summary = found["result"]["node_id_to_summary"]["cluster"]["summary"]
        self.summaries.append({name: entry["state_counts"] for name, entry in summary.items()})
        self.actors |= {a["name"] for a in self.ask("api/v0/actors")["data"]["result"]["result"]}
        return self.summaries[-1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The small run, with a dashboard, stopped after its heads until the tests have looked."""
    root = tmp_path_factory.mktemp("dashboard") / "small"
    log = root.with_suffix(".log")
    command = [sys.executable, "-m", "jobs", "run", str(ROOT / "configs" / "smoke.yaml")]
    command += ["--dashboard", "--run-dir", str(root), f"heads.folds={FOLDS}"]
    command += ["site.cpus=2", "site.object_store_mb=100", f"collect.limit={EPISODES}"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SENTINEL_RAY_A"))}
    # Ray's workers give way to whatever else a machine does (nice 15): not while a test waits.
    kept |= {"SLURM_JOB_ID": "17", "RAY_worker_niceness": "0"}
    with log.open("w") as out:
        driver = subprocess.Popen(command, cwd=ROOT, env=kept, stdout=out, stderr=out)
    try:
        told = _until(lambda: re.search(r"dashboard: (\S+) .*token: (.+)\)", log.read_text()), log)
        watched = Watched(told[1], Path(told[2]).read_text(), log.read_text())
        deadline = time.monotonic() + 200
        # Not by the run's own files: Ray tells of tasks a second late, and a stopped driver never.
        while watched.look().get("heads") != {"FINISHED": FITS}:
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        driver.send_signal(signal.SIGSTOP)
        yield watched
        driver.send_signal(signal.SIGCONT)
        assert driver.wait(timeout=120) == 0, log.read_text()
    finally:
        driver.send_signal(signal.SIGCONT)
        driver.terminate()
        driver.wait(timeout=60)


def _until(found: Any, log: Path, seconds: float = 200.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return value


def test_the_api_counts_the_tasks_of_every_stage_while_they_run(run: Watched) -> None:
    running = [s["collect"] for s in run.summaries if "RUNNING" in s.get("collect", {})]
    assert running, "episodes in flight were seen"
    last = run.summaries[-1]
    assert last["collect"] == {"FINISHED": 2 * EPISODES}
    assert last["label"] == {"FINISHED": 2}
    assert last["heads"] == {"FINISHED": FITS}
    assert not {name for name in last if name.endswith((".pulse", ".put", ".admit"))}
    assert run.actors >= {"collect-0", "collect-1", "progress"}


def test_jobs_say_which_run_stage_and_slurm_job(run: Watched) -> None:
    (job,) = run.ask("api/jobs/")
    assert job["status"] == "RUNNING"
    assert {k: job["metadata"][k] for k in ("run", "stage", "slurm_job")} == {
        "run": "smoke",
        "stage": "run",
        "slurm_job": "17",
    }


def test_no_token_no_answer_and_a_tunnel_is_told(run: Watched) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{run.url}/api/jobs/", timeout=60)
    port = run.url.rpartition(":")[2]
    assert run.url == f"http://127.0.0.1:{port}"
    assert f"ssh -L 8265:127.0.0.1:{port} " in run.told
    assert run.token not in run.told


def test_gauges_are_at_the_port_that_prometheus_is_told(run: Watched) -> None:
    session = Path(re.search(r"token: (.+)/token\)", run.told)[1]) / "session_latest"
    found = session / "prom_metrics_service_discovery.json"
    targets = [t for entry in json.loads(found.read_text()) for t in entry["targets"]]
    assert found.name in (session / "metrics" / "prometheus" / "prometheus.yml").read_text()
    assert list((session / "metrics" / "grafana" / "dashboards").glob("*.json"))
    wanted = f'ray_sentinel_items_done.*stage="collect".* {2 * EPISODES}.0'

    told: list[str] = []

    def seen() -> bool:
        for target in targets:
            # Ray's autoscaler has a fixed port, which another Ray of this machine may hold.
            with contextlib.suppress(OSError):
                page = urllib.request.urlopen(f"http://{target}/metrics", timeout=30)
                told.extend(x for x in page.read().decode().splitlines() if "sentinel" in x)
        return any(re.match(wanted, line) for line in told)

    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline, told
        time.sleep(1)


@pytest.mark.browser
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine")
def test_a_person_sees_the_stages_after_typing_the_token(run: Watched, tmp_path: Path) -> None:
    with chromium.tab(tmp_path / "profile") as page:
        page.go(f"{run.url}/#/jobs/01000000")
        assert page.until("document.activeElement.type === 'password'"), "asks for the token"
        assert "collect" not in page.value("document.body.innerText")
        page.type(run.token)
        assert page.until("document.body.innerText.includes('Hide finished')")
        page.value(EXPAND)
        told = page.until(f"/collect[^]*heads/.test({BARS}) && {BARS}")
        assert told, page.value("document.body.innerText")
        words = told.split()
        # An actor's start counts as a task of its stage.
        for stage, count in (("collect", 2 * EPISODES + 2), ("heads", FITS)):
            after = words[words.index(stage) :]
            assert after[:6].count(str(count)) == 2, told
        page.go(f"{run.url}/#/actors")
        assert page.until("document.body.innerText.includes('progress of small')")
        assert "collect-1" in page.value("document.body.innerText")
