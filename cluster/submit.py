"""Submission to Slurm: what a job runs, the batch scripts, and the chain of jobs.

A job's script and its pickled `StageCommand` are written before anything is submitted, so that what
`--dry-run` leaves behind is what runs. The script hands the pickle to submitit under the job's id;
submitit catches the warning before a time limit or a preemption and queues the job again.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission

from cluster import job_record as record
from cluster import slurm
from cluster.forward import Forward, end_group, exit_code
from cluster.job_record import Job, Outcome, Submission
from sentinel.errors import UserError

INTERRUPTED = tuple(
    128 + s for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
)
POLL = 0.2
MAX_TITLE = 200


class StageCommand(submitit.helpers.Checkpointable):
    """Runs `python -m jobs STAGE --run-dir DIR …` in its allocation, with Ray where it maps work.

    All state is on disk: after a time limit, a preemption or a death the same command goes on where
    the run directory stands. This class is all that is pickled.
    """

    def __init__(
        self,
        stage: str,
        run_dir: Path | str,
        arguments: Sequence[str] = (),
        *,
        element: str = "",
        record_dir: Path | str | None = None,
        ray: Mapping[str, Any] | None = None,
    ) -> None:
        """`arguments` follow `--run-dir`. `element`: what this job works on, in words.

        `record_dir`: the run directory that keeps the record of the jobs, where it is another
        (sweeps). `ray`: settings for `run_in_allocation`; None runs the command alone.
        """
        self.stage, self.run_dir, self.element = stage, str(run_dir), element
        self.arguments = tuple(arguments)
        self.record_dir = str(record_dir or run_dir)
        self.ray = None if ray is None else dict(ray)

    def checkpoint(self, *args: Any, **kwargs: Any) -> DelayedSubmission:
        """Itself: nothing is kept but what is on disk."""
        return DelayedSubmission(self, *args, **kwargs)

    def command(self) -> list[str]:
        """The command of rank 0."""
        return [sys.executable, "-m", "jobs", self.stage, "--run-dir", self.run_dir,
                *self.arguments]  # fmt: skip

    def __call__(self) -> int:
        """Run it, keep its outcome, and end with its exit code."""
        root, key = Path(self.record_dir), record.key_from_env(os.environ)
        leads = os.environ.get("SLURM_PROCID", "0") == "0"
        if leads:
            record.forget_outcome(root, key)  # of an earlier life
        code = 1
        try:
            code = self._run(root)
        except UserError as error:
            print(f"sentinel: {error}", file=sys.stderr, flush=True)
            code = 2
        except SystemExit:  # submitit has queued the job again
            code = INTERRUPTED[0]
            raise
        finally:
            if leads:
                restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
                final = code not in INTERRUPTED
                outcome = Outcome(self.stage, self.element, code, final, restart=restart)
                record.write_outcome(root, key, outcome)
        if code:
            raise SystemExit(code)
        return 0

    def _run(self, root: Path) -> int:
        if self.ray is not None:
            from cluster.allocation import run_in_allocation

            return run_in_allocation(self.command(), job_folder=record.folder(root), **self.ray)
        with Forward() as forward:
            child = forward.start(self.command(), os.environ)
            try:
                while child.poll() is None and not forward.overdue:
                    time.sleep(POLL)
            finally:
                end_group(child)
        forward.pass_on()
        return exit_code(child.returncode)


@dataclass(frozen=True)
class Step:
    """Jobs that may run at once: one command, or the elements of an array.

    `parameters`: submitit's, as a site and the stage's resources give them.
    """

    stage: str
    commands: tuple[StageCommand, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    python: str | None = None
    requeues: int = 20


@dataclass(frozen=True)
class Script:
    """A batch script with its pickles, ready to be submitted. `step`: its place in the chain."""

    path: Path
    step: int
    stage: str
    elements: tuple[str, ...]
    array: bool

    @property
    def variable(self) -> str:
        """A shell variable for its job id."""
        return "job_" + re.sub(r"\W", "_", self.path.stem)


class _Executor(submitit.SlurmExecutor):
    """submitit's writer of batch scripts, also where Slurm is not installed."""

    @classmethod
    def affinity(cls) -> int:
        return 2

    def text(self, elements: int) -> str:
        self.parameters["map_count"] = elements if elements > 1 else None
        return str(self._make_submission_file_text(self._submitit_command_str, ""))


def check_path(root: Path) -> None:
    """Raise UserError for a run directory whose name Slurm would take for something else."""
    bad = sorted({c for c in str(root) if c in "%\\\n\r" or not c.isprintable()})
    if bad:
        raise UserError(
            f"the run directory's path holds {', '.join(map(repr, bad))}, which Slurm replaces in "
            f"names of logs ({root})",
            "name another: --run-dir DIR",
        )


def prepare(root: Path, steps: Sequence[Step], token: str, max_array: int) -> list[Script]:
    """Write the scripts and pickles of a chain into the run's `slurm/` folder."""
    check_path(root)
    place = record.folder(root)
    place.mkdir(parents=True, exist_ok=True)
    scripts = []
    for number, step in enumerate(steps):
        for start in range(0, len(step.commands), max_array):
            part = step.commands[start : start + max_array]
            chunk = f".{start // max_array + 1}" if len(step.commands) > max_array else ""
            name = f"{number + 1}-{step.stage}{chunk}"
            scripts.append(_script(place, name, number, step, part, token))
    return scripts


def _script(
    place: Path, name: str, number: int, step: Step, part: Sequence[StageCommand], token: str
) -> Script:
    executor = _Executor(place, max_num_timeout=step.requeues)
    if step.python is not None:
        executor.python = step.python
    parameters = dict(step.parameters)
    setup = [*parameters.pop("setup", ()), *_hand_over(place, name, array=len(part) > 1)]
    executor.update_parameters(
        **parameters, comment=token, setup=setup, stderr_to_stdout=True, wckey=None
    )
    for i, command in enumerate(part):
        delayed = DelayedSubmission(command)
        delayed.set_timeout(int(parameters["time"]), step.requeues)
        delayed.dump(place / f"{name}.{i}.pkl")
    path = place / f"{name}.sbatch"
    path.write_text(executor.text(len(part)), encoding="utf-8")
    return Script(path, number, step.stage, tuple(c.element for c in part), len(part) > 1)


def _hand_over(place: Path, name: str, *, array: bool) -> list[str]:
    """Shell lines that give submitit the pickle under the job's id, at the job's first start."""
    key = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if array else "${SLURM_JOB_ID}"
    index = "$SLURM_ARRAY_TASK_ID" if array else "0"
    return [
        # Since Slurm 22.05 srun does not inherit --cpus-per-task.
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        f"cd {shlex.quote(str(place))} || exit 1",
        f'[ -e "{key}_submitted.pkl" ] || cp "{name}.{index}.pkl" "{key}_submitted.pkl" || exit 1',
    ]


def sbatch(script: Script, after: Sequence[str]) -> list[str]:
    """The command that submits one script after the jobs of the step before it have ended."""
    depends = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    return ["sbatch", "--parsable", *depends, str(script.path)]


def shell(scripts: Sequence[Script]) -> list[str]:
    """The chain as lines of a shell."""
    lines = []
    for script in scripts:
        after = [f"${s.variable}" for s in scripts if s.step == script.step - 1]
        depends = f"--dependency=afterany:{':'.join(after)} " if after else ""
        path = shlex.quote(str(script.path))
        lines.append(f"{script.variable}=$(sbatch --parsable {depends}{path})")
    return lines


def submit(root: Path, scripts: Sequence[Script], token: str, env: Mapping[str, str]) -> Submission:
    """Submit a chain and record it. Raises UserError where Slurm refuses; then nothing stays."""
    submission = Submission(token, time.time())
    ids: dict[int, list[str]] = {}
    for script in scripts:
        done = slurm.ask(sbatch(script, ids.get(script.step - 1, [])), env)
        try:
            if done.returncode:
                raise ValueError(slurm.complaint(done))
            number = slurm.job_id(done.stdout)
        except ValueError as error:
            slurm.cancel([job.id for job in submission.jobs])
            raise UserError(
                f"Slurm refused {script.path.name}: {error}",
                "what was queued before it was cancelled; mend the site file and run again",
            ) from error
        ids.setdefault(script.step, []).append(number)
        job = Job(script.stage, number, script.elements, script.array, script.path.name)
        submission = Submission(token, submission.at, (*submission.jobs, job))
        record.write(root, submission)
    return submission


def would_take(script: Script, env: Mapping[str, str]) -> str | None:
    """Slurm's objection to a script, None where it would take it; nothing is queued."""
    done = slurm.ask(["sbatch", "--test-only", str(script.path)], env)
    return None if done.returncode == 0 else slurm.complaint(done)


def is_shared(root: Path, options: Sequence[str], env: Mapping[str, str]) -> bool | None:
    """Whether a node sees the run directory; None where no node was free to look.

    A file is written here and looked for there, in an allocation of seconds.
    """
    probe = record.folder(root) / f".probe-{os.getpid()}-{time.time_ns()}"
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.write_text("")
    look = 'test -e "$1"; echo seen=$?'
    command = ["srun", "--quiet", "--immediate=5", "--nodes=1", "--ntasks=1", "--cpus-per-task=1",
               "--mem=16", "--time=1", "--chdir=/", "--job-name=sentinel-probe", *options,
               "sh", "-c", look, "sh", str(probe)]  # fmt: skip
    try:
        done = slurm.ask(command, env, seconds=20)
    except UserError:
        return None
    finally:
        probe.unlink(missing_ok=True)
    found = re.search(r"seen=(\d+)", done.stdout)
    return None if found is None else found[1] == "0"


def python_of(container: str | None, python: str | None) -> str | None:
    """The shell words that start Python on a node; None: this interpreter, outside a container."""
    if container is None and python is None:
        return None
    return " ".join(x for x in (container, shlex.quote(python or sys.executable)) if x)


def title(*parts: str) -> str:
    """A job's name."""
    return re.sub(r"[^\w.+=,-]+", "_", "-".join(parts))[:MAX_TITLE]
