"""One Ray per Slurm allocation: every rank calls `run_in_allocation`; rank 0 leads.

Rank 0 starts the head and runs the command, the others start workers and leave when it is done.
Each ends its own child only. With one node the same happens with no one to follow.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from cluster import allocation_env as slurm
from cluster import ports as port_runs
from cluster.allocation_env import Allocation
from cluster.forward import Forward, end_group, exit_code
from cluster.meeting import End, Head, Meeting
from cluster.ports import Ports
from cluster.ray_health import PULSE, Probe, Pulse
from cluster.ray_node import NodePlan, NodeProcess, cleaned, token_settings
from cluster.ray_runtime import ADDRESS_ENV, ATTEMPTS, BUSY, dashboard_lines
from cluster.ray_temp import TempDir
from sentinel.errors import UserError

Log = Callable[[str], None]
POLL, FILE_POLL = 0.2, 1.0
"""Seconds between looks at processes, and at the shared folder, where many nodes look."""
LAST_WORD = 5.0
"""Seconds in which the head's file may still say why a worker's Ray ended."""


@dataclass(frozen=True)
class Options:
    """Settings of the cluster that are the same on every rank."""

    object_store_mb: int
    ready_s: float
    interface: str | None
    dashboard: bool
    log: Log


def say(text: str) -> None:
    """A line with the time on standard output."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def run_in_allocation(
    command: Sequence[str],
    *,
    job_folder: Path,
    cpus: int | None = None,
    gpus: int | None = None,
    memory_mb: int | None = None,
    object_store_mb: int = 1024,
    ready_s: float = 180.0,
    interface: str | None = None,
    dashboard: bool = False,
    log: Log = say,
) -> int:
    """Form the Ray of this allocation, run `command` once on rank 0, and take everything down.

    Called by every rank of a step with one task per node. `cpus`, `gpus` and `memory_mb` are per
    node, taken from Slurm where None; the object store gets at most 30 % of the memory.
    `job_folder` is on a disk that the nodes share; address and token meet there (mode 600, removed
    at the end). `ready_s` is the deadline for all nodes, `interface` names the network between
    them where routing would choose another.

    The command joins through SENTINEL_RAY_ADDRESS (RAY_ADDRESS and the token are set as well) and
    shares this process's output. SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 are told on to it; after
    everything is taken down the handler that was there before gets the signal too (submitit's
    requeues the job).

    Returns the command's exit code (128 + signal) on every rank. Raises UserError with the tail of
    Ray's log as its cause when a node cannot take part.
    """
    options = Options(object_store_mb, ready_s, interface, dashboard, log)
    share = Allocation.from_env(cpus=cpus, gpus=gpus, memory_mb=memory_mb)
    meeting = Meeting(slurm.writable(Path(job_folder).absolute()), share.life)
    with Forward() as forward:
        if share.rank == 0:
            code = _lead(command, share, meeting, options, forward)
        else:
            code = _follow(share, meeting, options, forward)
    forward.pass_on()
    return code


def _lead(
    command: Sequence[str], share: Allocation, meeting: Meeting, options: Options, forward: Forward
) -> int:
    """Rank 0: head, readiness, command, end."""
    token = secrets.token_hex(32)
    ip = slurm.head_address(share, options.interface)
    end = End(1, f"the head on {socket.gethostname()} failed")
    with closing(_starts(share, meeting, options, ip, token, None)) as starts:
        try:
            for node in starts:
                if _is_ready(node, share, meeting, options, forward):
                    end = End(_work(command, node, meeting, options, forward))
                    return end.code
                if forward.received is not None:
                    end = End(128 + forward.received, "ended by a signal before it was ready")
                    return end.code
            raise AssertionError("a start ends in a result or an error")
        except UserError as error:
            end = End(1, error.cause)
            raise
        finally:
            meeting.end(end)  # workers leave before their head does


def _follow(share: Allocation, meeting: Meeting, options: Options, forward: Forward) -> int:
    """Another rank: a worker until the head's file says that it is over."""
    head = _head(meeting, options, forward)
    if isinstance(head, End):
        return head.code
    host = head.address.rpartition(":")[0]
    ip = slurm.address_of(options.interface) if options.interface else slurm.address_towards(host)
    with closing(_starts(share, meeting, options, ip, head.token, head.address)) as starts:
        try:
            for node in starts:
                pulse = Pulse(head.address)
                while not node.ended():
                    end = meeting.ended()
                    if end is not None:
                        return end.code
                    if forward.overdue:
                        return 128 + int(forward.received or 0)
                    pulse.check()
                    time.sleep(FILE_POLL)
                end = _last_word(meeting)
                if end is not None:
                    return end.code
            raise AssertionError("a start ends in a result or an error")
        except UserError as error:
            meeting.fault(share.rank, error.cause)
            raise


def _starts(
    share: Allocation,
    meeting: Meeting,
    options: Options,
    ip: str,
    token: str,
    head_address: str | None,
) -> Generator[NodeProcess]:
    """Starts of Ray on this node; each is taken down before the next, and at the end.

    The next is tried where the last lost its ports or was too slow; else it is a UserError.
    """
    root = os.environ.get("SENTINEL_RAY_TMP") or "/tmp"
    number = "".join(c for c in share.job_id if c.isdigit()) or "0"
    ports: Ports | None = None
    for attempt in range(ATTEMPTS):
        with ExitStack() as held:
            ports = held.enter_context(port_runs.reserved(number, share.cpus, after=ports))
            temp = TempDir.make(number, Path(root))
            held.callback(temp.remove)
            plan = NodePlan(
                allocation=share,
                ports=ports,
                ip=ip,
                temp_dir=temp.path,
                token=token,
                object_store_mb=options.object_store_mb,
                head_address=head_address,
                dashboard=options.dashboard and head_address is None,
            )
            node = NodeProcess(plan, meeting.log(share.rank))
            held.callback(node.stop)
            yield node
            taken, cause = ports.taken(), node.cause()
            where = f"on {socket.gethostname()}"
            if not (taken or any(sign in cause for sign in BUSY)) or attempt + 1 == ATTEMPTS:
                raise UserError(f"Ray ended {where}: {cause}", f"see {node.log}")
            why = f"ports {taken} were taken meanwhile" if taken else cause
            options.log(f"Ray {where} is started again: {why}")


def _is_ready(
    node: NodeProcess, share: Allocation, meeting: Meeting, options: Options, forward: Forward
) -> bool:
    """Wait for the head, announce it, wait for the others; `ready_s` seconds for each.

    False when the head ended or a signal came. Raises UserError at a deadline, or when a rank
    cannot take part.
    """
    begin = since = time.monotonic()
    address, token = node.plan.address, node.plan.token
    with Probe(address, share.ranks, driver_environment(address, token, share.gpus)) as probe:
        alive = 0
        while alive < share.ranks:
            if node.ended() or forward.received is not None:
                return False
            for rank, cause in meeting.faults().items():
                raise UserError(f"rank {rank} cannot take part: {cause}", "see its log")
            if probe.ended() and (alive := probe.alive()) < share.ranks:
                raise UserError(
                    f"no driver can use Ray at {address}: {probe.cause()}", f"see {node.log}"
                )
            if alive == 0 < probe.alive():
                # Not before: a worker gives up at once on a head that is half up.
                meeting.open(Head(address, token))
                since = time.monotonic()
            alive = probe.alive()
            if time.monotonic() - since > options.ready_s:
                raise UserError(
                    f"{alive} of {share.ranks} Ray nodes after {options.ready_s:g} s",
                    f"see ray-{share.life}-*.log in {meeting.folder}: is it shared by all nodes, "
                    "and do they reach each other (interface in the site file)?",
                )
            time.sleep(POLL)
    took = time.monotonic() - begin
    options.log(f"Ray of {share.ranks} nodes ready after {took:.1f} s at {address}")
    if options.dashboard:
        token_file = meeting.folder / f"ray-{share.life}-head.json"
        for line in dashboard_lines(node.plan.ports.dashboard, str(token_file)):
            options.log(line)
    return True


def _work(
    command: Sequence[str],
    node: NodeProcess,
    meeting: Meeting,
    options: Options,
    forward: Forward,
) -> int:
    """Run the command; its exit code. Raises UserError when Ray ends under it.

    A worker that is lost is only told: Ray runs its tasks again elsewhere.
    """
    env = driver_environment(node.plan.address, node.plan.token, node.plan.allocation.gpus)
    child = forward.start(command, env)
    lost, told, look = None, set(), 0.0
    try:
        while child.poll() is None:
            if time.monotonic() > look:
                look = time.monotonic() + PULSE
                for rank, cause in meeting.faults().items():
                    if rank not in told:
                        options.log(f"rank {rank} is lost: {cause}")
                    told.add(rank)
            if node.ended() and lost is None:
                lost = time.monotonic()
            if forward.overdue or (lost is not None and time.monotonic() - lost > LAST_WORD):
                break
            time.sleep(POLL)
    finally:
        end_group(child)
    code = exit_code(child.returncode)
    if lost is not None and code and forward.received is None:
        raise UserError(f"Ray ended while the command ran: {node.cause()}", f"see {node.log}")
    return code


def _head(meeting: Meeting, options: Options, forward: Forward) -> Head | End:
    """The head's address, or the end that came first. Raises UserError at the deadline."""
    limit = 2 * options.ready_s  # the head has as long to come up, then its workers
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        found = meeting.ended() or meeting.head()
        if found is not None:
            return found
        if forward.received is not None and forward.overdue:
            return End(128 + forward.received)
        time.sleep(FILE_POLL)
    raise UserError(
        f"{socket.gethostname()}: no head was announced in {meeting.folder} within {limit:g} s",
        "is that folder on a disk that all nodes share? See the job's log of rank 0",
    )


def _last_word(meeting: Meeting) -> End | None:
    """The end that the head wrote about when this node's Ray ended."""
    deadline = time.monotonic() + LAST_WORD
    while time.monotonic() < deadline:
        end = meeting.ended()
        if end is not None:
            return end
        time.sleep(POLL)
    return None


def driver_environment(address: str, token: str, gpus: int) -> dict[str, str]:
    """The environment of a command that joins the allocation's Ray."""
    return {
        **cleaned(os.environ, gpus),
        **token_settings(token),
        ADDRESS_ENV: address,
        "RAY_ADDRESS": address,
    }
