"""What is kept of jobs, and how each stands by its files and by the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import job_record as record
from cluster.job_record import Job, Outcome, Submission
from cluster.slurm import Queued

ARRAY = Job("collect", "7", ("a", "b"), True, "1-collect.sbatch")
SINGLE = Job("label", "8", ("all agents",), False, "2-label.sbatch")
BOTH = Submission("t", 1.0, (ARRAY, SINGLE))


def queued(key: str, state: str, reason: str = "None") -> dict[str, Queued]:
    return {key: Queued(key, state, reason, "n1")}


def looked(root: Path, queue: dict[str, Queued] | None) -> dict[str, str]:
    return {x.key: x.state for x in record.look(root, BOTH, queue)}


def test_submissions_are_read_as_written(tmp_path):
    record.write(tmp_path, Submission("s", 0.5))
    record.write(tmp_path, Submission("t", 1.0, (ARRAY,)))
    record.write(tmp_path, BOTH)
    assert record.read(tmp_path) == [Submission("s", 0.5), BOTH]
    assert record.read(tmp_path / "none") == []


def test_without_slurm_and_outcomes_all_is_as_submitted(tmp_path):
    assert looked(tmp_path, None) == {"7_0": "submitted", "7_1": "submitted", "8": "submitted"}


def test_outcomes_are_believed_without_slurm(tmp_path):
    for key, code in (("7_0", 0), ("7_1", 1), ("8", 3)):
        record.write_outcome(tmp_path, key, Outcome("x", "y", code, True, host="n2"))
    assert looked(tmp_path, None) == {"7_0": "done", "7_1": "failed", "8": "incomplete"}
    assert record.look(tmp_path, BOTH, None)[1].cause == "exit code 1 on n2"


def test_an_interrupted_job_that_waits_again_is_waiting(tmp_path):
    record.write_outcome(tmp_path, "7_0", Outcome("x", "y", 143, False))
    queue = queued("7_0", "PENDING", "BeginTime")
    assert looked(tmp_path, queue)["7_0"] == "waiting"
    assert looked(tmp_path, queued("7_0", "RUNNING"))["7_0"] == "running"
    record.forget_outcome(tmp_path, "7_0")
    record.forget_outcome(tmp_path, "7_0")
    assert record.read_outcome(tmp_path, "7_0") is None


@pytest.mark.parametrize(
    ("state", "cause"),
    [("CANCELLED", "cancelled"), ("TIMEOUT", "timeout"), ("NODE_FAIL", "node fail"),
     ("OUT_OF_MEMORY", "out of memory")],
)  # fmt: skip
def test_a_job_that_slurm_ended_failed(tmp_path, state, cause):
    found = record.look(tmp_path, BOTH, queued("8", state))[2]
    assert (found.state, found.cause) == ("failed", cause)
    assert found.over


def test_a_job_that_is_gone_without_a_word_failed(tmp_path):
    found = record.look(tmp_path, BOTH, {})[2]
    assert found.state == "failed"
    assert "do its nodes share the run directory?" in found.cause
    record.log_path(tmp_path, "8").parent.mkdir(parents=True)
    record.log_path(tmp_path, "8").write_text("started\n")
    assert "share" not in record.look(tmp_path, BOTH, {})[2].cause


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("a\nsentinel: no weights; do this\n[12:00:00] collect: done\n", "sentinel: no weights; "
         "do this"),
        ("x\nTraceback (most recent call last):\nray.exceptions.RayError: boom\nlast\n",
         "ray.exceptions.RayError: boom"),
        ("x\nslurmstepd: error: *** STEP 9.0 ON n1 CANCELLED\nbye\n",
         "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED"),
        ("one\ntwo\n", "two"),
    ],
)  # fmt: skip
def test_the_line_of_a_log_that_says_why(tmp_path, text, line):
    log = tmp_path / "x.log"
    log.write_text("early\n" * 20_000 + text if text else text)
    assert record.failure_line(log) == line
    assert record.failure_line(tmp_path / "none.log") == ""


def test_ids_as_slurm_writes_them():
    assert ARRAY.keys() == ["7_0", "7_1"]
    assert SINGLE.keys() == ["8"]
    assert record.key_from_env({"SLURM_JOB_ID": "9"}) == "9"
    env = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    assert record.key_from_env(env) == "7_1"
