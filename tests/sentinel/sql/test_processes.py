"""Workers are replaced, die with their parent, and share nothing with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sql_sandbox import BOMBS, CLOCK, one

from sentinel.sql.sandbox import Limits, SandboxPool


def test_a_worker_stuck_outside_the_handler_is_killed_and_replaced(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1, Limits(seconds=0.2, grace_seconds=0.2)) as sandbox:
        (worker,) = sandbox._all
        os.kill(worker.process.pid, signal.SIGSTOP)
        started = time.monotonic()
        assert "timeout" in str(sandbox.query("SELECT 1").error)
        assert time.monotonic() - started < 2.0
        assert one(sandbox, "SELECT 2") == 2
        assert worker.process.poll() is not None


def test_a_worker_that_was_killed_costs_no_statement(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1) as sandbox:
        for sql in ("SELECT 2", "SELECT date() > '2105' + 1"):
            (worker,) = sandbox._all
            worker.process.kill()
            worker.process.wait()
            assert one(sandbox, sql) in (2, 1)
            assert len(sandbox._all) == 1


def test_a_worker_killed_in_a_statement_is_replaced(database: Path) -> None:
    with SandboxPool(database, CLOCK, 1) as sandbox, ThreadPoolExecutor(1) as threads:
        (worker,) = sandbox._all
        running = threads.submit(sandbox.query, BOMBS[0])
        time.sleep(0.3)
        worker.process.kill()
        assert "ended its worker" in str(running.result().error)
        assert one(sandbox, "SELECT 2") == 2


def test_a_coroutine_does_not_block_the_loop(database: Path) -> None:
    async def ticks() -> int:
        with SandboxPool(database, CLOCK, 1, Limits(seconds=0.5)) as sandbox:
            query = asyncio.create_task(sandbox.aquery(BOMBS[0]))
            count = 0
            while not query.done():
                await asyncio.sleep(0.01)
                count += 1
            return count

    assert asyncio.run(ticks()) > 5


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


PARENT = """
import sys, threading, time
from sentinel.sql.sandbox import Limits, SandboxPool
pool = SandboxPool(sys.argv[1], "2105-12-31 23:59:00", 2, Limits(seconds=60))
bomb = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"
threading.Thread(target=pool.query, args=(bomb,), daemon=True).start()
time.sleep(0.3)
print(*[w.process.pid for w in pool._all], flush=True)
time.sleep(60)
"""


def test_workers_die_with_their_parent_idle_or_busy(database: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert gone(pids)


def test_a_worker_outlives_the_thread_that_started_it(database: Path) -> None:
    made: list[SandboxPool] = []
    thread = threading.Thread(target=lambda: made.append(SandboxPool(database, CLOCK)))
    thread.start()
    thread.join()
    with made[0] as sandbox:
        (worker,) = sandbox._all
        time.sleep(0.2)
        assert one(sandbox, "SELECT 1") == 1
        assert worker.process.poll() is None


def test_close_ends_workers_and_queries_in_flight(database: Path) -> None:
    sandbox = SandboxPool(database, CLOCK, 2, Limits(seconds=60))
    pids = [worker.process.pid for worker in sandbox._all]
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sandbox.query, BOMBS[0])
        time.sleep(0.3)
        sandbox.close()
        with pytest.raises(RuntimeError, match="closed"):
            running.result(timeout=10)
    sandbox.close()
    assert gone(pids)
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.query("SELECT 1")


def test_a_dropped_pool_leaves_no_process(database: Path) -> None:
    sandbox = SandboxPool(database, CLOCK)
    pids = [worker.process.pid for worker in sandbox._all]
    del sandbox
    assert gone(pids)


def test_a_worker_inherits_no_secret(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with SandboxPool(database, CLOCK) as sandbox:
        (worker,) = sandbox._all
        environment = Path(f"/proc/{worker.process.pid}/environ").read_bytes()
    assert b"sk-secret" not in environment


def test_a_worker_loads_the_standard_library_only(database: Path) -> None:
    with SandboxPool(database, CLOCK) as sandbox:
        (worker,) = sandbox._all
        one(sandbox, "SELECT 1")
        mapped = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert "site-packages" not in mapped
