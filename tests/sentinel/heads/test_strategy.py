"""One fit over one process or several, in one piece or in micro-steps: the same numbers."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shared_fit
from hypothesis import given
from hypothesis import strategies as st

from sentinel.heads.config import HeadConfig
from sentinel.heads.strategy import micro_steps, shares

ROOT = Path(__file__).resolve().parents[3]
WORKER = (
    "import sys, numpy, torch, shared_fit\n"
    "from sentinel.heads.strategy import DataParallel\n"
    "torch.distributed.init_process_group('gloo')\n"
    "found = shared_fit.shared_fit({'micro_batch': 6}, DataParallel())\n"
    "numpy.savez(sys.argv[1], losses=found['losses'], logits=found['logits'])\n"
    "torch.distributed.destroy_process_group()\n"
)


@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 5))
def test_shares_hold_every_row_once(size: int, steps: int, world: int) -> None:
    found = [shares(size, steps, world, rank) for rank in range(world)]
    assert {len(parts) for parts in found} == {steps}
    rows = np.concatenate([part for parts in found for part in parts])
    np.testing.assert_array_equal(np.sort(rows), np.arange(size))
    sizes = [part.size for parts in found for part in parts]
    assert max(sizes) <= math.ceil(math.ceil(size / steps) / world)


@given(st.integers(1, 100), st.integers(1, 40), st.integers(1, 8))
def test_no_process_reads_more_rows_at_once_than_it_may(batch: int, micro: int, world: int) -> None:
    steps = micro_steps(HeadConfig(batch_size=batch, micro_batch=micro), world)
    assert max(p.size for p in shares(batch, steps, world, 0)) <= micro
    assert micro_steps(HeadConfig(batch_size=batch), world) == 1


@pytest.mark.slow
def test_micro_steps_change_only_rounding() -> None:
    whole, pieces = shared_fit.alone(), shared_fit.alone(micro_batch=5)
    assert len(whole["losses"]) == 50
    np.testing.assert_allclose(pieces["losses"], whole["losses"], rtol=1e-4)
    np.testing.assert_allclose(pieces["logits"], whole["logits"], atol=1e-3)
    assert whole["losses"][-1] < 0.9 * whole["losses"][0]


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environ = {**os.environ, **shared, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / f"{rank}.npz")],
            env=environ | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], errors
    finally:
        for process in processes:
            process.kill()
            process.wait()
    one = shared_fit.alone()
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npz")
        np.testing.assert_allclose(found["losses"], one["losses"], rtol=1e-4)
        np.testing.assert_allclose(found["logits"], one["logits"], atol=1e-3)
