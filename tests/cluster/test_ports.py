from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import ports
from cluster.ports import FIRST, FIXED, LAST, UNIT, UNITS, Ports, first_unit, reserved, units_for
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@given(job=st.integers(0, 10**9), cpus=st.integers(1, 512))
def test_a_run_lies_below_the_ports_of_outgoing_connections(job: int, cpus: int) -> None:
    assert 0 <= first_unit(str(job)) < UNITS
    run = Ports(FIRST + first_unit(str(job)) * UNIT, units_for(cpus) * UNIT)
    assert run.base >= FIRST > 1024
    assert run.count - FIXED >= 4 * cpus  # worker processes
    assert LAST < 32768


@given(job=st.integers(0, 10**9))
def test_neighbouring_jobs_begin_apart(job: int) -> None:
    near = [first_unit(str(job + i)) for i in range(UNITS // 2)]
    assert len(set(near)) == len(near)


def test_every_port_is_named_once_and_lies_in_its_run() -> None:
    run = Ports(20000, 256)
    named = {
        **run.node_options(),
        **run.head_options(),
        **{k: int(v) for k, v in run.environment().items()},
    }
    assert len(set(named.values())) == len(named)
    workers = range(named.pop("min-worker-port"), named.pop("max-worker-port") + 1)
    assert workers == range(20016, 20256)
    assert all(port in run.fixed() and port not in workers for port in named.values())


def test_two_of_one_number_get_different_runs_and_give_them_back() -> None:
    with reserved("77", 2) as first:
        with reserved("77", 2) as second, reserved("77", 200) as wide:
            runs = [set(range(p.base, p.base + p.count)) for p in (first, second, wide)]
            assert len(set.union(*runs)) == sum(len(r) for r in runs)
            assert len(runs[2]) >= 800
        with reserved("77", 2) as again:
            assert again == second
    with reserved("77", 2) as again:
        assert again == first


def test_a_listener_moves_the_run() -> None:
    with reserved("78", 2) as run:
        base = run.base
    with socket.create_server(("127.0.0.1", base + 3)):
        assert run.taken() == [base + 3]
        with reserved("78", 2) as other:
            assert other.base != base
    assert run.taken() == []


def test_after_a_collision_another_run_is_tried() -> None:
    with reserved("79", 2) as run:
        pass
    with reserved("79", 2, after=run) as other:
        assert other.base != run.base
    last = Ports(FIRST + (UNITS - 1) * UNIT, UNIT)
    with reserved("79", 2, after=last) as other:  # it goes on at the beginning
        assert other.base < last.base


def test_a_reservation_dies_with_its_holder() -> None:
    code = (
        "from cluster.ports import reserved\n"
        "with reserved('80', 2) as run:\n"
        "    print(run.base, flush=True); input()\n"
    )
    held = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert held.stdout is not None
    assert held.stdin is not None
    base = int(held.stdout.readline())
    with reserved("80", 2) as run:
        assert run.base != base
    held.kill()
    held.wait()
    held.stdout.close()
    held.stdin.close()
    with reserved("80", 2) as run:
        assert run.base == base


def test_no_free_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # A few units of their own, so that nobody else's reservations count.
    monkeypatch.setattr(ports, "UNITS", 2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(reserved("1", 2))
        with pytest.raises(UserError, match="no 128 ports"):
            stack.enter_context(reserved("1", 2))
