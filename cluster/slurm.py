"""Slurm's own word: what a partition has, what the queue says, whether it would take a job.

Only sbatch, squeue, sinfo, scontrol and srun are asked, each with a deadline. Never sacct: not
every site has accounting, and where numbers were begun anew it answers with an old job of the same
id. A job is therefore known by its number and by the token in its comment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sentinel.errors import UserError

DEADLINE = 30.0
"""Seconds for one answer; without a controller the clients would ask for minutes."""
COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "srun")
UNDER_WAY = frozenset({"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "CONFIGURING"})
WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESIZING", "SUSPENDED",
     "STOPPED"}
)  # fmt: skip
KEPT_PINS = ("SLURM_CONF",)
JOIN_ENV = ("RAY_ADDRESS", "SENTINEL_RAY_ADDRESS", "RAY_AUTH_TOKEN", "CUDA_VISIBLE_DEVICES")
"""What would make a job use the submitting process's Ray or GPUs."""
SBATCH_DEFAULTS = {
    "partition": "SBATCH_PARTITION",
    "account": "SBATCH_ACCOUNT",
    "qos": "SBATCH_QOS",
}
"""Defaults that a user's shell may set, and that a site file overrules."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes of a partition that are alike."""

    partition: str
    default: bool
    up: bool
    nodes: int
    cpus: int
    memory_mb: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Queued:
    """A job or array element as the queue shows it."""

    id: str
    state: str
    reason: str
    nodes: str

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.state not in UNDER_WAY | WAITING


def ask(
    command: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = DEADLINE
) -> subprocess.CompletedProcess[str]:
    """Run one Slurm command. Raises UserError when it is not there or does not answer."""
    try:
        return subprocess.run(
            command,
            env=environment() if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise no_slurm(command[0]) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"{command[0]} gave no answer within {seconds:g} s",
            "is the Slurm controller up? (scontrol ping)",
        ) from error


def answer(command: Sequence[str], seconds: float = DEADLINE) -> str:
    """What a command printed. Raises UserError with its complaint when it failed."""
    done = ask(command, seconds=seconds)
    if done.returncode:
        raise UserError(
            f"{command[0]} failed: {complaint(done)}", "is SLURM_CONF right? (scontrol ping)"
        )
    return done.stdout


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of standard error without the command's name."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {done.returncode}"
    return re.sub(r"^(\w+: (error: |fatal: )?|allocation failure: )", "", last)[:300]


def no_slurm(command: str) -> UserError:
    """The error where Slurm's commands are not installed."""
    return UserError(
        f"no Slurm on this machine ({command} is not on the path)",
        "log in to a machine that submits jobs, or run here: --on local",
    )


def require() -> None:
    """Raise UserError unless this machine can submit jobs."""
    for name in COMMANDS:
        if shutil.which(name) is None:
            raise no_slurm(name)


def environment(sets: Collection[str] = ()) -> dict[str, str]:
    """This process's environment for a submission.

    What an allocation around us pinned (SLURM_*, and options as SBATCH_* or SRUN_*) would overrule
    the batch script: it is left out, but for SLURM_CONF, and for the user's default partition,
    account and quality of service where the site file (`sets`) names none.
    """
    kept = {*KEPT_PINS, *(env for name, env in SBATCH_DEFAULTS.items() if name not in sets)}
    return {
        k: v
        for k, v in os.environ.items()
        if k in kept
        or not (k.startswith(("SLURM_", "SLURMD_", "SBATCH_", "SRUN_")) or k in JOIN_ENV)
    }


def node_kinds() -> list[NodeKind]:
    """What every partition consists of. Raises UserError when Slurm does not answer."""
    kinds = []
    for line in answer(["sinfo", "--noheader", "--format=%P|%a|%D|%c|%m|%G"]).splitlines():
        parts = line.strip().split("|")
        if len(parts) != 6:  # a banner
            continue
        name, up, nodes, cpus, memory, gres = parts
        kinds.append(
            NodeKind(
                name.removesuffix("*"),
                name.endswith("*"),
                up == "up",
                _number(nodes),
                _number(cpus),
                _number(memory),
                gpus_of(gres),
            )
        )
    return kinds


def gpus_of(gres: str) -> int:
    """GPUs in a list of generic resources: `gpu:2`, `gpu:a100:4(S:0-1),shard:8`."""
    total = 0
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = item.split(":")
        if kind == "gpu":
            total += int(rest[-1]) if rest and rest[-1].isdigit() else 1
    return total


def max_array_size() -> int:
    """Elements that one array may have: its indices end at MaxArraySize - 1."""
    found = re.search(
        r"^\s*MaxArraySize\s*=\s*(\d+)", answer(["scontrol", "show", "config"]), re.MULTILINE
    )
    return max(1, int(found[1])) if found else 1001


def queue(token: str, seconds: float = DEADLINE) -> dict[str, Queued]:
    """Jobs of this user that carry the token, array elements one by one; also those just ended.

    Raises UserError when the queue cannot be read. A job that is not in it is over: Slurm forgets
    finished jobs after minutes.
    """
    text = answer(
        ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}",
         "--format=%k|%i|%T|%N|%r"],
        seconds,
    )  # fmt: skip
    found = {}
    for line in text.splitlines():
        comment, _, rest = line.strip().partition("|")
        parts = rest.split("|", 3)
        if comment == token and len(parts) == 4:
            found[parts[0]] = Queued(parts[0], parts[1], parts[3], parts[2])
    return found


def job_id(text: str) -> str:
    """The id in what `sbatch --parsable` printed, whatever banner came before it.

    Raises ValueError when there is none.
    """
    for line in reversed(text.splitlines()):
        found = re.fullmatch(r"\s*(\d+)(;[\w.-]+)?\s*", line)
        if found:
            return found[1]
    raise ValueError(f"no job id in {text[-300:]!r}")


def cancel(ids: Sequence[str]) -> None:
    """End jobs of ours. Raises UserError when Slurm does not answer."""
    if ids:
        ask(["scancel", *ids])


def _number(text: str) -> int:
    """`8000+` (mixed nodes, the least) → 8000."""
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0
