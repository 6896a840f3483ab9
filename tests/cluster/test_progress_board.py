import io
import time
import urllib.request

import pytest

from cluster.progress import Progress, read_progress
from cluster.progress_board import GAUGES, NAME, Link, gauge_values
from cluster.run_dir import RunDir


def told(**changes):
    return {"stage": "collect", "state": "running", "done": 3, "total": 9, "failed": 1} | changes


def test_every_gauge_has_a_source():
    counts = dict.fromkeys(
        ("cached", "replicas", "replicas_busy", "tokens_per_second", "spend_usd"), 1
    )
    assert gauge_values(told(eta_seconds=5.0, counts=counts)).keys() == GAUGES.keys()


def test_what_is_unknown_is_left_out_and_not_zero():
    found = gauge_values(told(eta_seconds=None, counts={}))
    assert found == {"items_done": 3.0, "items_total": 9.0, "items_failed": 1.0}


def test_without_ray_there_is_no_board(monkeypatch):
    import sys

    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert Link.open({"run": "run"}) is None


def test_a_line_holds_the_numbers_of_the_stage(tmp_path):
    out = io.StringIO()
    with Progress("collect", 9, done=2, run_dir=RunDir(tmp_path), stream=out) as progress:
        progress.counts |= {"cached": 2, "replicas": 2, "replicas_busy": 1}
        progress.counts |= {"tokens_per_second": 1234.5, "spend_usd": 0.125}
        progress.advance(3, failed=1)
        line = progress.line()
    assert line.startswith(
        "collect: 5/9 items, 1 failed, 2 from before, 1/2 busy, 1,234 tokens/s, $0.12"
    )
    (kept,) = read_progress(RunDir(tmp_path))
    assert kept["counts"]["tokens_per_second"] == 1234.5


def test_stages_share_one_named_actor_that_knows_run_and_job(ray_cluster, tmp_path, monkeypatch):
    import ray

    monkeypatch.setenv("SLURM_JOB_ID", "17")
    run_dir = RunDir(tmp_path / "my run")
    for stage in ("collect", "label"):
        with Progress(stage, 4, run_dir=run_dir, stream=io.StringIO()) as progress:
            progress.advance(4, failed=1)
    board = ray.get_actor(NAME)
    stages = ray.get(board.get.remote())
    assert {"collect", "label"} <= stages.keys()
    assert stages["label"]["state"] == "done"
    assert stages["label"]["failed"] == 1
    assert (stages["label"]["run"], stages["label"]["slurm_job"]) == ("my run", "17")


@pytest.mark.slow
def test_prometheus_reads_the_gauges_at_the_metrics_port(ray_cluster, tmp_path):
    import ray

    with Progress("heads", 7, run_dir=RunDir(tmp_path / "r1"), stream=io.StringIO()) as progress:
        progress.advance(3)
        port = ray.nodes()[0]["MetricsExportPort"]
        deadline, seen = time.monotonic() + 60, set()
        while 3.0 not in seen and time.monotonic() < deadline:
            progress.tick()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                lines = page.read().decode().splitlines()
            found = [x for x in lines if x.startswith("ray_sentinel_items_done{") and "heads" in x]
            seen |= {float(line.rsplit(" ", 1)[1]) for line in found}
            time.sleep(0.5)
    assert 3.0 in seen, f"gauges seen within a minute: {seen or None}"
