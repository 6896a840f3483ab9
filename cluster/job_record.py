"""What was submitted for a run, and how each job ended: files in the run's `slurm/` folder.

`jobs.json` lists the submissions; every job writes its own outcome when its command has ended, so
that one can see how a run stands without asking Slurm. A job that was killed has no outcome.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cluster import files
from cluster.slurm import UNDER_WAY, Queued

FOLDER = "slurm"
TAIL = 64 * 1024
State = Literal["waiting", "running", "done", "incomplete", "failed", "submitted"]


@dataclass(frozen=True)
class Job:
    """One job, or array of jobs. `elements`: what each element works on, in order of index."""

    stage: str
    id: str
    elements: tuple[str, ...]
    array: bool
    script: str

    def keys(self) -> list[str]:
        """Ids of the elements as Slurm writes them."""
        return [f"{self.id}_{i}" for i in range(len(self.elements))] if self.array else [self.id]


@dataclass(frozen=True)
class Submission:
    """Jobs that were submitted together, under one token."""

    token: str
    at: float
    jobs: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Look:
    """How one element stands. `line`: what its log says of a failure."""

    stage: str
    key: str
    element: str
    state: State
    cause: str = ""
    line: str = ""
    log: str = ""

    @property
    def over(self) -> bool:
        """Whether it will do nothing more."""
        return self.state in ("done", "incomplete", "failed")


@dataclass(frozen=True)
class Outcome:
    """How the command of a job ended. `final` is false where a signal ended it."""

    stage: str
    element: str
    code: int
    final: bool
    host: str = field(default_factory=socket.gethostname)
    restart: int = 0
    at: float = field(default_factory=time.time)


def folder(root: Path) -> Path:
    """Where scripts, logs and records of a run's jobs lie."""
    return root / FOLDER


def read(root: Path) -> list[Submission]:
    """All submissions of a run, oldest first."""
    found = files.read_json(folder(root) / "jobs.json") or {}
    return [
        Submission(
            item["token"],
            item["at"],
            tuple(Job(**{**job, "elements": tuple(job["elements"])}) for job in item["jobs"]),
        )
        for item in found.get("submissions", [])
    ]


def write(root: Path, submission: Submission) -> None:
    """Add a submission, or replace the one with its token."""
    kept = [s for s in read(root) if s.token != submission.token]
    rows = [asdict(s) for s in (*kept, submission)]
    files.write_json(folder(root) / "jobs.json", {"submissions": rows})


def write_outcome(root: Path, key: str, outcome: Outcome) -> None:
    """Say how a job's command ended."""
    files.write_json(folder(root) / "outcomes" / f"{key}.json", asdict(outcome))


def forget_outcome(root: Path, key: str) -> None:
    """Remove the outcome of a job that runs again."""
    (folder(root) / "outcomes" / f"{key}.json").unlink(missing_ok=True)


def read_outcome(root: Path, key: str) -> Outcome | None:
    """How a job's command ended; None while it runs, or where it was killed."""
    path = folder(root) / "outcomes" / f"{key}.json"
    try:
        # Another node may see a new file late: the folder is listed, not the name asked for.
        found = files.read_json(path) if path in path.parent.iterdir() else None
    except OSError:
        return None
    return None if found is None else Outcome(**found)


def log_path(root: Path, key: str) -> Path:
    """The log of a job: what its command and Slurm wrote."""
    return folder(root) / f"{key}_0_log.out"


def look(root: Path, submission: Submission, queue: Mapping[str, Queued] | None) -> list[Look]:
    """How each element of a submission stands; `queue`: what Slurm says, None where not asked."""
    return [
        _look(root, job, key, element, queue)
        for job in submission.jobs
        for key, element in zip(job.keys(), job.elements, strict=True)
    ]


def _look(root: Path, job: Job, key: str, element: str, queue: Mapping[str, Queued] | None) -> Look:
    outcome, queued = read_outcome(root, key), (queue or {}).get(key)
    log = log_path(root, key)

    def found(state: State, cause: str = "") -> Look:
        line = failure_line(log) if state in ("failed", "incomplete") else ""
        return Look(job.stage, key, element, state, cause, line, str(log))

    if outcome is not None and outcome.final and (queued is None or queued.state != "PENDING"):
        if outcome.code == 0:
            return found("done")
        if outcome.code == 3:
            return found("incomplete", "parts are missing (exit code 3)")
        return found("failed", f"exit code {outcome.code} on {outcome.host}")
    if queue is None:
        return found("submitted")
    if queued is None:
        what = "interrupted" if outcome is not None else "ended without a word"
        seen = "" if log.exists() else "; it left no log: do its nodes share the run directory?"
        return found("failed", f"{what}, and is in the queue no more{seen}")
    if queued.state in UNDER_WAY:
        return found("running", queued.nodes)
    if not queued.over:
        return found("waiting", queued.reason)
    if queued.state == "COMPLETED":  # its outcome is not seen here yet, or lost
        return found("done")
    return found("failed", queued.state.lower().replace("_", " "))


def failure_line(log: Path) -> str:
    """The line of a log that says why: the last of ours or of an error, else the last of all."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [x for x in lines if re.match(r"sentinel: |[\w.]*(Error|Exception)\b", x)]
    slurm = [x for x in lines if re.match(r"(slurmstepd|srun): error: ", x)]
    return (told or slurm or lines or [""])[-1][:300]


def key_from_env(env: Mapping[str, str]) -> str:
    """The id of the job element that this process belongs to, as `Job.keys` writes it."""
    array = env.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{env['SLURM_ARRAY_TASK_ID']}" if array else env["SLURM_JOB_ID"]


def summary(looks: list[Look]) -> dict[str, Any]:
    """Counts by state."""
    counts: dict[str, int] = {}
    for item in looks:
        counts[item.state] = counts.get(item.state, 0) + 1
    return counts
