from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from cluster.ledger import Ledger
from sentinel.errors import UserError

POOL = ("clinic", "manifest-hash")


def test_replay_is_free_and_another_monitor_needs_a_reason(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.looks(*POOL, "steady").evaluations == 0
    assert ledger.record(*POOL, "steady", "m1", run="r1").monitors == ("m1",)
    assert ledger.record(*POOL, "steady", "m1", run="r2").evaluations == 2
    with pytest.raises(UserError, match="already evaluated") as caught:
        ledger.record(*POOL, "steady", "m2", run="r3")
    assert "--again" in str(caught.value)
    with pytest.raises(UserError, match="already evaluated"):
        ledger.record(*POOL, "steady", "m2", run="r3", again="  ")
    assert ledger.looks(*POOL, "steady").evaluations == 2, "a refused look is no look"
    looks = ledger.record(*POOL, "steady", "m2", run="r3", again="new encoder")
    assert (looks.monitors, looks.reasons) == (("m1", "m2"), ("new encoder",))
    assert ledger.record(*POOL, "steady", "m2", run="r4").evaluations == 4


def test_agents_benchmarks_and_manifests_are_apart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(*POOL, "steady", "m1", run="r")
    ledger.record(*POOL, "other", "m2", run="r")
    ledger.record("clinic", "other-manifest", "steady", "m2", run="r")
    ledger.record("ehrsql", POOL[1], "steady", "m2", run="r")
    assert ledger.looks(*POOL, "steady").monitors == ("m1",)


def test_a_new_run_directory_does_not_forget(tmp_path: Path) -> None:
    first = Ledger.beside(tmp_path / "runs" / "one")
    assert first.folder == tmp_path / "ledgers"
    first.record(*POOL, "steady", "m1", run="one")
    with pytest.raises(UserError):
        Ledger.beside(tmp_path / "runs" / "two").record(*POOL, "steady", "m2", run="two")


def test_a_torn_last_line_goes_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(*POOL, "steady", "m1", run="r")
    path = ledger.path(*POOL)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"agent": "st')
    assert ledger.record(*POOL, "steady", "m1", run="r").evaluations == 2
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(UserError, match="line 1 of the held-out ledger"):
        ledger.record(*POOL, "steady", "m1", run="r")


def _look(folder: str, number: int, results: object) -> None:
    try:
        Ledger(folder).record(*POOL, "steady", f"m{number}", run="r")
        os._exit(0)
    except UserError:
        os._exit(7)


def test_two_processes_cannot_both_be_first(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_look, args=(str(tmp_path), i, None)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(w.exitcode for w in workers) == [0, 7, 7, 7, 7, 7]
    assert len(Ledger(tmp_path).looks(*POOL, "steady").monitors) == 1
