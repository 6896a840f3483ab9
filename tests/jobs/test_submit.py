"""`--on slurm` without a Slurm: the chain of a run, what each stage asks for, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import fake_slurm
import pytest
import yaml

from cluster.slurm import NodeKind
from jobs import __main__ as cli
from jobs.config import RunConfig
from jobs.resources import parameters, resources
from jobs.submit import chain
from jobs.submit_checks import check_site, fits
from sentinel.errors import UserError

RAW = {
    "name": "small",
    "benchmarks": [{"name": "w"}],
    "agents": [{"name": n, "engine": "transformers", "model": "m"} for n in ("a", "b")],
    "monitors": [{"name": "s", "method": "sentinel"}],
}
DEBUG = NodeKind("debug", True, True, 2, 4, 8000, 2)
BIG = NodeKind("big", False, True, 1, 64, 512000, 8)


def config(**more: object) -> RunConfig:
    return RunConfig.from_mapping({**RAW, **more})


def test_a_run_is_a_chain_with_arrays_over_agents():
    steps = chain(config(), Path("/r"), "run")
    assert [(s.stage, len(s.commands)) for s in steps] == [
        ("collect", 2), ("label", 1), ("heads", 2), ("audit", 1), ("calibrate", 1),
        ("bootstrap", 1), ("report", 1),
    ]  # fmt: skip
    collect = steps[0].commands[1]
    assert collect.arguments == ("--agent", "b")
    assert collect.ray is not None
    assert steps[4].commands[0].ray is None  # reads tables in one process


def test_a_site_may_do_without_ray(config_file, tmp_path):
    site = {"ray": False, "nodes": 2}
    steps = chain(config(site=site), Path("/r"), "run")
    assert all(c.ray is None for s in steps for c in s.commands)
    assert {s.parameters["nodes"] for s in steps} == {1}
    root = tmp_path / "r"
    argv = ["run", str(config_file), "--on", "slurm", "--dry-run", "--run-dir", str(root)]
    assert cli.main([*argv, "site.ray=false"]) == 0
    assert json.loads((root / "config.json").read_text())["on"] == "debug"


def test_methods_and_timing_add_their_stages():
    both = [{"name": "s", "method": "sentinel"}, {"name": "c", "method": "cascade"}]
    stages = [s.stage for s in chain(config(monitors=both), Path("/r"), "run")]
    assert stages == list(config(monitors=both).stages)
    timed = config(collect={"timed_episodes": 5})
    stages = [s.stage for s in chain(timed, Path("/r"), "run")]
    assert stages[-3:] == ["pace", "bootstrap", "report"]


def test_one_stage_of_one_agent_is_one_job():
    (step,) = chain(config(), Path("/r"), "collect", ["b"])
    assert [c.arguments for c in step.commands] == [("--agent", "b")]
    (step,) = chain(config(agents=RAW["agents"][:1]), Path("/r"), "collect")
    assert [c.arguments for c in step.commands] == [()]


def test_a_reason_to_look_again_travels():
    steps = chain(config(), Path("/r"), "run", again="wider net")
    assert all(c.arguments[-2:] == ("--again", "wider net") for s in steps for c in s.commands)


def test_resources_come_from_the_site_then_the_plan_then_defaults():
    plan = {"collect": {"memory_mb": 20000, "cpus": 6, "gpus": 1, "hours": 1.5}}
    assert resources(config(), "collect").cpus == 4
    found = resources(config(), "collect", plan)
    assert (found.cpus, found.gpus, found.memory_mb, found.hours) == (6, 1, 20000, 3.0)
    assert resources(config(), "report", plan).gpus == 0
    site = {"cpus": 2, "hours": 2.0, "stages": {"collect": {"cpus": 9, "memory_mb": 100}}}
    found = resources(config(site=site), "collect", plan)
    assert (found.cpus, found.gpus, found.memory_mb, found.hours) == (9, 1, 100, 2.0)
    assert resources(config(site=site), "label", plan).cpus == 2
    short = {"collect": {"hours": 0.001}}
    assert resources(config(), "collect", short).hours == pytest.approx(1 / 6)


def test_gpus_are_those_that_agents_need():
    agents = [{"name": "v", "engine": "vllm", "model": "m", "tensor_parallel": 4}]
    assert resources(config(agents=agents), "collect").gpus == 4
    assert resources(config(agents=agents), "label").gpus == 0
    assert resources(config(), "collect").gpus == 0
    assert resources(config(site={"gpus": 2}), "collect").gpus == 2
    assert resources(config(site={"gpus": 2}), "audit").gpus == 0
    again = config(site={"gpus": 2}, audit={"seeds": 3})
    assert resources(again, "audit").gpus == 2


def test_a_whole_run_asks_for_the_most_of_its_stages():
    site = {"stages": {"heads": {"cpus": 12}, "collect": {"memory_mb": 9000}}}
    found = resources(config(site=site), "run")
    assert (found.cpus, found.memory_mb) == (12, 9000)


def test_a_site_becomes_sbatch_options():
    site = {
        "partition": "p", "account": "a", "qos": "q", "modules": ["cuda/12 x"],
        "environment": {"X": "a b"}, "setup": ["ulimit -n 9"], "options": {"exclude": "n7"},
        "signal_seconds": 30, "nodes": 2,
    }  # fmt: skip
    one = config(site=site)
    found = parameters(one, "collect", resources(one, "collect"))
    assert (found["partition"], found["account"], found["qos"]) == ("p", "a", "q")
    assert found["setup"] == ["module load 'cuda/12 x'", "export X='a b'", "ulimit -n 9"]
    assert found["additional_parameters"] == {"requeue": True, "exclude": "n7"}
    assert (found["nodes"], found["time"], found["signal_delay_s"]) == (2, 240, 30)
    assert resources(one, "calibrate").nodes == 1  # maps nothing


@pytest.mark.parametrize(
    ("site", "cause"),
    [
        ({"partition": "dbug"}, "no partition 'dbug' on this cluster"),
        ({"gpus": 3}, "3 GPUs per node, a node of partition debug has 2"),
        ({"cpus": 5}, "5 CPUs per node"),
        ({"memory_mb": 8001}, "8001 MB of memory"),
        ({"nodes": 3}, "3 nodes, partition debug has 2"),
    ],
)
def test_what_no_node_has_is_refused(site, cause):
    one = config(site=site)
    with pytest.raises(UserError, match=cause) as error:
        fits(one, chain(one, Path("/r"), "run"), [DEBUG, BIG])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("site", [{"partition": "big", "gpus": 8}, {"partition": "debug,big"}, {}])
def test_what_a_node_has_is_not(site):
    one = config(site=site)
    fits(one, chain(one, Path("/r"), "run"), [DEBUG, BIG])


def test_a_partition_that_is_down_is_refused():
    down = NodeKind("debug", True, False, 2, 4, 8000, 2)
    with pytest.raises(UserError, match="is down"):
        fits(config(), chain(config(), Path("/r"), "run"), [down])


def test_an_unknown_stage_of_a_site_is_named():
    with pytest.raises(UserError, match=r"no stage 'colect'.*did you mean collect"):
        check_site(config(site={"stages": {"colect": {"cpus": 1}}}))
    with pytest.raises(UserError, match="names a running Ray"):
        check_site(config(site={"address": "1.2.3.4:6379"}))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(RAW))
    return path


def test_a_dry_run_needs_no_slurm(config_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    root = tmp_path / "my run"
    argv = ["run", str(config_file), "--on", "slurm", "--dry-run", "--run-dir", str(root)]
    assert cli.main([*argv, "site.partition=p"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("# nothing was submitted")
    assert out[1] == f"job_1_collect=$(sbatch --parsable '{root}/slurm/1-collect.sbatch')"
    assert out[1:] == (root / "slurm" / "submit.sh").read_text().splitlines()
    assert len(out) == 8
    assert "#SBATCH --partition=p" in (root / "slurm" / "1-collect.sbatch").read_text()
    recorded = json.loads((root / "config.json").read_text())
    assert (recorded["on"], recorded["site"]["name"]) == ("local", "slurm")


def test_a_monitor_that_is_not_there_is_told_before_anything_is_queued(
    config_file, tmp_path, capsys
):
    root = tmp_path / "out"
    argv = ["run", str(config_file), "--on", "slurm", "--dry-run", "--run-dir", str(root)]
    assert cli.main([*argv, "site.partition=p", f"stop_with={tmp_path}/none"]) == 2
    assert "none is no folder; name RUN/monitor" in capsys.readouterr().err
    assert not root.exists()


def test_no_slurm_is_one_line_before_anything_is_written(
    config_file, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("PATH", "/nowhere")
    root = tmp_path / "out"
    assert cli.main(["run", str(config_file), "--on", "slurm", "--run-dir", str(root)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no Slurm on this machine" in err
    assert not root.exists()


def test_a_full_answer_of_slurm_is_told(config_file, tmp_path, monkeypatch, capsys):
    """Ids, and the commands that follow and end them; a second submission waits for the first."""
    ids = tmp_path / "ids"
    queue = f'for i in $(cat {ids}.all); do echo "$(cat {ids}.token)|$i|PENDING||x"; done'
    sbatch = (
        f'case "$*" in *test-only*) exit 0;; esac; echo x >> {ids}; n=$(wc -l < {ids}); '
        f"grep -ho 'sentinel-[0-9a-f]*' \"$(eval echo \\${{$#}})\" | head -1 > {ids}.token; "
        f"echo $n >> {ids}.all; echo 'Job 3 of yours waits'; echo $n"
    )
    fake_slurm.install(
        tmp_path / "bin", monkeypatch, sbatch=sbatch, squeue=queue, srun="echo seen=0",
        sinfo="echo 'debug*|up|2|4|8000|gpu:2'", scontrol="echo MaxArraySize = 1",
        scancel="exit 0",
    )  # fmt: skip
    root = tmp_path / "out"
    argv = ["run", str(config_file), "--on", "slurm", "--run-dir", str(root)]
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert "submitted        1  collect" in out  # an array of at most one is a plain job
    assert f"follow:  sentinel status {root} --follow" in out
    assert "cancel:  scancel 1 2 3 4 5 6 7 8" in out
    assert cli.main(argv) == 2
    assert "jobs of this run are still in the queue" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ({"srun": "echo seen=1"}, "the nodes do not see"),
        ({"sbatch": "echo 'allocation failure: Invalid account' >&2; exit 1"}, "Invalid account"),
    ],
)
def test_a_refusal_comes_before_anything_is_queued(
    config_file, tmp_path, monkeypatch, capsys, answers, cause
):
    queued = tmp_path / "queued"
    usual = {
        "sbatch": f'case "$*" in *test-only*) exit 0;; esac; touch {queued}; echo 1',
        "squeue": "exit 0", "srun": "echo seen=0", "scancel": "exit 0",
        "sinfo": "echo 'debug*|up|2|4|8000|gpu:2'", "scontrol": "echo MaxArraySize = 9",
    }  # fmt: skip
    fake_slurm.install(tmp_path / "bin", monkeypatch, **{**usual, **answers})
    argv = ["run", str(config_file), "--on", "slurm", "--run-dir", str(tmp_path / "out")]
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert cause in err
    assert not queued.exists()
