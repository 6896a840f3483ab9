"""Batch scripts, what is pickled, the chain; and the command of a job without any Slurm."""

from __future__ import annotations

import pickle
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import fake_slurm
import pytest

from cluster import job_record as record
from cluster.submit import Script, StageCommand, Step, check_path, prepare, shell, submit, title
from sentinel.errors import UserError

PARAMETERS = {"time": 30, "nodes": 1, "ntasks_per_node": 1, "cpus_per_task": 2, "mem": "100M"}


def step(stage: str, n: int, root: Path, **more: object) -> Step:
    commands = tuple(StageCommand(stage, root, element=f"a{i}") for i in range(n))
    return Step(stage, commands, {**PARAMETERS, **more})


def test_a_script_asks_for_what_it_was_told(tmp_path):
    more = {"setup": ["module load x"], "gpus_per_node": 2, "account": "it's mine"}
    (script,) = prepare(tmp_path, [step("collect", 3, tmp_path, **more)], "token-1", 1001)
    lines = script.path.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    asked = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    assert {"array=0-2%3", "comment=token-1", "cpus-per-task=2", "gpus-per-node=2", "mem=100M",
            "nodes=1", "ntasks-per-node=1", "open-mode=append", "time=30"} <= asked  # fmt: skip
    assert not [a for a in asked if a.startswith(("wckey", "error"))]
    # Each in its order: modules, then what srun does not inherit, then the pickle, then the work.
    order = ["module load x", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"]
    places = [lines.index(x) for x in order]
    assert places == sorted(places)
    assert lines[-1].startswith("srun ")
    assert "-m submitit.core._submit" in lines[-1]


def test_the_shell_lines_hand_each_element_its_pickle(tmp_path):
    root = tmp_path / "it's a run"
    scripts = prepare(root, [step("collect", 2, root), step("label", 1, root)], "t", 9)
    place = record.folder(root)
    for script, env, name in (
        (scripts[0], {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}, "7_1"),
        (scripts[1], {"SLURM_JOB_ID": "8"}, "8"),
    ):
        text = script.path.read_text().replace("\nsrun ", "\n: srun ")
        subprocess.run(["bash", "-e"], input=text, text=True, env=env, check=True, timeout=20)
        pickled = place / f"{name}_submitted.pkl"
        delayed = pickle.loads(pickled.read_bytes())
        assert isinstance(delayed.function, StageCommand)
        # A checkpoint that is there already is kept.
        pickled.write_bytes(b"checkpoint")
        subprocess.run(["bash", "-e"], input=text, text=True, env=env, check=True, timeout=20)
        assert pickled.read_bytes() == b"checkpoint"


def test_a_pickle_names_modules_of_cluster_alone(tmp_path):
    command = StageCommand("collect", tmp_path, ["--agent", "a"], ray={"object_store_mb": 80})
    data = pickle.dumps(command)
    assert b"jobs" not in data
    again = pickle.loads(data)
    assert again.command()[1:] == ["-m", "jobs", "collect", "--run-dir", str(tmp_path), "--agent",
                                   "a"]  # fmt: skip
    assert again.checkpoint().function is again


@pytest.mark.parametrize(("n", "cap", "sizes"), [(4, 3, [3, 1]), (3, 3, [3]), (5, 1, [1] * 5)])
def test_arrays_are_cut_at_what_slurm_takes(tmp_path, n, cap, sizes):
    scripts = prepare(tmp_path, [step("run", n, tmp_path)], "t", cap)
    assert [len(s.elements) for s in scripts] == sizes
    assert len({s.path for s in scripts}) == len(scripts)
    assert [e for s in scripts for e in s.elements] == [f"a{i}" for i in range(n)]


def test_the_next_step_waits_for_every_chunk_of_the_one_before(tmp_path):
    steps = [step("collect", 4, tmp_path), step("label", 1, tmp_path)]
    lines = shell(prepare(tmp_path, steps, "t", 3))
    assert len(lines) == 3
    assert lines[2].startswith("job_2_label=$(sbatch --parsable --dependency=afterany:")
    assert "$job_1_collect_1:$job_1_collect_2" in lines[2]
    assert "dependency" not in lines[0] + lines[1]


@pytest.mark.parametrize("name", ["50%", "new\nline", "back\\slash"])
def test_a_path_that_slurm_would_change_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="path holds"):
        check_path(tmp_path / name)
    check_path(tmp_path / "with spaces, 'quotes' and é")


def test_job_names_are_short_and_plain():
    assert title("a b/c", "collect") == "a_b_c-collect"
    assert len(title("x" * 300, "collect")) == 200


def scripts_of(tmp_path: Path) -> list[Script]:
    return prepare(tmp_path, [step("collect", 2, tmp_path), step("label", 1, tmp_path)], "t", 99)


def test_a_chain_is_submitted_and_recorded(tmp_path, monkeypatch):
    log = tmp_path / "asked"
    counter = f'echo "$@" >> {log}; echo "motd of job 99"; wc -l < {log}'
    fake_slurm.install(tmp_path / "bin", monkeypatch, sbatch=counter)
    found = submit(tmp_path, scripts_of(tmp_path), "t", {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert [(j.stage, j.id, j.array) for j in found.jobs] == [
        ("collect", "1", True),
        ("label", "2", False),
    ]
    assert record.read(tmp_path) == [found]
    assert "--dependency=afterany:1 " in log.read_text().splitlines()[1]


def test_a_refusal_in_the_middle_cancels_what_was_queued(tmp_path, monkeypatch):
    refuse = (
        'case "$*" in *label*) echo "sbatch: error: QOSMaxSubmitJob" >&2; exit 1;; esac; echo 41'
    )
    gone = tmp_path / "gone"
    fake_slurm.install(tmp_path / "bin", monkeypatch, sbatch=refuse, scancel=f'echo "$@" > {gone}')
    with pytest.raises(UserError, match=r"refused 2-label.sbatch: QOSMaxSubmitJob"):
        submit(tmp_path, scripts_of(tmp_path), "t", {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert gone.read_text() == "41\n"


class Sleeper(StageCommand):
    """A job whose command is a script of the test's."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.stage]


def ended(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    try:
        return Sleeper(code, tmp_path)()
    except SystemExit as end:
        return end.code


def test_a_job_keeps_its_exit_code_and_its_outcome(tmp_path, monkeypatch):
    record.write_outcome(tmp_path, "5", record.Outcome("", "", 9, True))
    assert ended(tmp_path, "raise SystemExit(3)", monkeypatch) == 3
    outcome = record.read_outcome(tmp_path, "5")
    assert (outcome.code, outcome.final) == (3, True)
    assert ended(tmp_path, "pass", monkeypatch) == 0
    assert record.read_outcome(tmp_path, "5").code == 0


def test_a_signal_reaches_the_command_and_the_outcome_is_not_final(tmp_path, monkeypatch):
    heard = tmp_path / "heard"
    code = (
        "import os, signal, sys, time, pathlib\n"
        f"def stop(*_): pathlib.Path({str(heard)!r}).write_text('yes'); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(30)"
    )
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    start = time.monotonic()
    try:
        assert ended(tmp_path, code, monkeypatch) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - start < 20
    assert heard.read_text() == "yes"
    assert not record.read_outcome(tmp_path, "5").final


def test_scripts_are_readable_by_slurm(tmp_path):
    (first, *_) = scripts_of(tmp_path)
    assert stat.S_ISREG(first.path.stat().st_mode)
    assert first.variable == "job_1_collect"
