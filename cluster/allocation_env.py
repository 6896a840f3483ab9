"""What Slurm gave to this rank, read from its environment; nothing is taken from the machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from sentinel.errors import UserError

GPU_GRANTS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
OBJECT_STORE_SHARE = 0.3
"""Largest share of the memory for Ray's object store."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """This rank's part of a Slurm job step.

    `life` names one life of one step: a requeued job, another step, and a job of the same number in
    another Slurm have another. `cpus`, `gpus` and `memory_mb` are of this node alone.
    """

    job_id: str
    life: str
    rank: int
    ranks: int
    hosts: tuple[str, ...]
    cpus: int
    gpus: int
    memory_mb: int

    @classmethod
    def from_env(
        cls,
        env: Mapping[str, str] | None = None,
        *,
        cpus: int | None = None,
        gpus: int | None = None,
        memory_mb: int | None = None,
    ) -> Allocation:
        """The allocation of this process; numbers that are given go first.

        Raises UserError outside a Slurm job, with several ranks per node, and where more is asked
        for than was allocated.
        """
        env = os.environ if env is None else env
        job_id = env.get("SLURM_JOB_ID")
        if job_id is None:
            raise UserError("this is no Slurm job (SLURM_JOB_ID is not set)", "use --on local")
        ranks = int(env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS") or 1)
        nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_JOB_NUM_NODES") or 1)
        if "SLURM_PROCID" not in env:  # the batch script itself, without srun
            ranks = nodes = 1
        if ranks != nodes:
            raise UserError(
                f"{ranks} tasks on {nodes} nodes: one Ray per node needs one task per node",
                "submit with --ntasks-per-node=1",
            )
        held_cpus, held_gpus = allocated_cpus(env), len(gpu_ids(env))
        for what, wanted, held in (("CPUs", cpus, held_cpus), ("GPUs", gpus, held_gpus)):
            if wanted is not None and wanted > held:
                raise UserError(
                    f"{wanted} {what} per node are wanted, Slurm job {job_id} has {held}",
                    f"ask Slurm for {wanted}, or want {held}",
                )
        count = held_cpus if cpus is None else cpus
        parts = (
            job_id,
            env.get("SLURM_RESTART_COUNT") or "0",
            env.get("SLURM_STEP_ID") or "batch",
            env.get("SLURM_STEP_LAUNCHER_PORT") or env.get("SLURM_SRUN_COMM_PORT") or "0",
        )
        return cls(
            job_id=job_id,
            life="-".join(parts),
            rank=int(env.get("SLURM_PROCID") or 0),
            ranks=ranks,
            hosts=hostnames(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""),
            cpus=count,
            gpus=held_gpus if gpus is None else gpus,
            memory_mb=allocated_memory_mb(env, count) if memory_mb is None else memory_mb,
        )


def allocated_cpus(env: Mapping[str, str]) -> int:
    """CPUs of this task: Slurm's number, never more than the process may run on."""
    named = env.get("SLURM_CPUS_PER_TASK") or env.get("SLURM_CPUS_ON_NODE") or "1"
    return max(1, min(int(named), len(os.sched_getaffinity(0))))


def gpu_ids(env: Mapping[str, str]) -> list[str]:
    """Ids of the GPUs that Slurm gave to this task; none where it gave none.

    CUDA_VISIBLE_DEVICES alone is no grant: a job inherits it from the shell that submitted it.
    """
    granted = next((env[name] for name in GPU_GRANTS if env.get(name)), "")
    named = env.get("CUDA_VISIBLE_DEVICES", granted) if granted else ""
    found = [x.strip() for x in named.split(",") if x.strip()]
    return [] if found[:1] in (["-1"], ["NoDevFiles"]) else _expanded(found)


def allocated_memory_mb(env: Mapping[str, str], cpus: int) -> int:
    """MiB of this node that are the job's; where Slurm does not count memory, the CPUs' share."""
    total = psutil.virtual_memory().total // 2**20
    per_node = int(env.get("SLURM_MEM_PER_NODE") or 0)
    per_cpu = int(env.get("SLURM_MEM_PER_CPU") or 0)
    per_gpu = int(env.get("SLURM_MEM_PER_GPU") or 0)
    if per_node or per_cpu or per_gpu:
        found = per_node or per_cpu * cpus or per_gpu * len(gpu_ids(env))
        return min(found, total)
    return total * cpus // max(cpus, os.cpu_count() or 1)


def object_store(memory_mb: int, wanted_mb: int) -> int:
    """MiB for the object store: what is wanted, at most its share of the memory, at least 80."""
    return max(80, min(wanted_mb, int(memory_mb * OBJECT_STORE_SHARE)))


def hostnames(nodes: str) -> tuple[str, ...]:
    """`n[1-2,5],x` → n1, n2, n5, x."""
    from submitit.slurm.slurm import _parse_node_list

    return tuple(_parse_node_list(nodes)) if nodes else ()


def address_towards(host: str) -> str:
    """This machine's IPv4 address on the interface that routes to `host` (nothing is sent)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def address_of(interface: str) -> str:
    """IPv4 address of a network interface by name. Raises UserError with the valid names."""
    found = {
        name: [a.address for a in addresses if a.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
    }
    if not found.get(interface):
        valid = ", ".join(sorted(name for name, ips in found.items() if ips))
        raise UserError(
            f"{socket.gethostname()} has no interface {interface} with an IPv4 address",
            f"valid: {valid}",
        )
    return found[interface][0]


def head_address(allocation: Allocation, interface: str | None = None) -> str:
    """Where the other nodes reach the head: by the named interface, or as routed to them.

    A single node takes the address of its default route (Ray never uses loopback where there is
    another), and loopback without a network.
    """
    if interface:
        return address_of(interface)
    mine = {socket.gethostname(), os.environ.get("SLURMD_NODENAME")}
    others = [h for h in allocation.hosts if h not in mine] if allocation.ranks > 1 else []
    for host in (*others, "10.255.255.255"):  # last: the default route
        try:
            return address_towards(host)
        except OSError:
            continue
    if allocation.ranks == 1:
        return "127.0.0.1"
    raise UserError(
        f"{socket.gethostname()} has no network route to {', '.join(others) or 'the other nodes'}",
        "name the network between the nodes: interface in the site file",
    )


def writable(folder: Path) -> Path:
    """The folder, made if need be. Raises UserError where the nodes cannot write to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{socket.gethostname()}-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written on {socket.gethostname()}: {error.strerror}",
            "use a folder on a disk that all nodes share",
        ) from error
    return folder


def _expanded(ids: list[str]) -> list[str]:
    """`0-2` → 0, 1, 2 (SLURM_JOB_GPUS may hold ranges)."""
    found: list[str] = []
    for item in ids:
        first, dash, last = item.partition("-")
        if dash and first.isdigit() and last.isdigit():
            found += [str(i) for i in range(int(first), int(last) + 1)]
        else:
            found.append(item)
    return found
