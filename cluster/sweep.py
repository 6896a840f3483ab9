"""Statistical sweeps on Ray Tune: one trial is one block of work, markers say what is done.

Tune is given only the blocks without a marker. Each trial commits its own tables to the run
directory before Tune hears of it, so that a killed driver loses at most the blocks in flight, and
Tune's storage (`tune/<stage>` in the run directory) may be deleted at any time. On a `debug`
cluster the same functions run in a plain loop.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import files
from cluster.pool import RETRIES, Advances, Cluster, ItemError, failure
from cluster.run_dir import RunDir
from cluster.stages import check_importable
from sentinel.errors import UserError

BlockFunction = Callable[[Any, Any], Mapping[str, pa.Table]]
"""`fn(shared, spec)` → tables by name; module-level, the same result wherever it runs."""

_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON and TensorBoard file per trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the command, as everywhere
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # nobody resumes from Tune's own state
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}


@dataclass(frozen=True, slots=True)
class Block:
    """One trial: where its parts lie (with the stage, the unit of "done"), and what it computes.

    `spec` is handed to the function; `input_hash` identifies everything that its result depends on.
    """

    benchmark: str
    agent: str | None
    item: str
    spec: Any
    input_hash: str

    def name(self, stage: str) -> str:
        """`stage/benchmark/agent/item`, as the dashboard shows it."""
        return "/".join(p for p in (stage, self.benchmark, self.agent, self.item) if p is not None)


@dataclass(frozen=True)
class Swept:
    """What a sweep did: blocks that were `kept`, those that `ran`, and errors by block name."""

    kept: tuple[Block, ...]
    ran: tuple[Block, ...]
    failed: Mapping[str, ItemError]

    def reraise(self) -> None:
        """Raise the first error, naming its block and how many others failed; else nothing."""
        for name, error in self.failed.items():
            more = f" (and {len(self.failed) - 1} more blocks)" if len(self.failed) > 1 else ""
            if isinstance(error.error, UserError):
                raise UserError(f"{name}{more}: {error.error.cause}", error.error.remedy)
            raise RuntimeError(f"{name}{more}: {error.cause}\n{error.trace}".strip())


def sweep(
    cluster: Cluster,
    run_dir: RunDir,
    stage: str,
    blocks: Sequence[Block],
    fn: BlockFunction,
    shared: Any = None,
    *,
    num_cpus: float = 1,
    progress: Advances | None = None,
) -> Swept:
    """Run every block without a marker, and return when all have one or have failed.

    `shared` goes to each worker once, through the object store. A block that fails is named in the
    result and the others finish; a worker process that dies is replaced twice.

    Raises UserError when a finished block has other inputs, or when a trial asks for more CPUs than
    there are.
    """
    check_importable(fn)
    names = [block.name(stage) for block in blocks]
    if len(set(names)) != len(names):
        raise ValueError(f"sweep {stage}: blocks with one name")
    done = [_done(run_dir, stage, block) for block in blocks]
    kept = [b for b, is_done in zip(blocks, done, strict=True) if is_done]
    missing = [b for b, is_done in zip(blocks, done, strict=True) if not is_done]
    failed: dict[str, ItemError] = {}
    if missing and cluster.debug:
        for block in missing:
            fault = run_block(run_dir, stage, block, fn, shared)
            if fault is not None:
                failed[block.name(stage)] = fault
            if progress is not None:
                progress.advance(1, failed=int(fault is not None))
    elif missing:
        cluster._check_fits(stage, num_cpus, 0)
        failed = _tune(run_dir, stage, missing, fn, shared, num_cpus, progress)
    return Swept(
        tuple(kept), tuple(b for b in missing if b.name(stage) not in failed), dict(failed)
    )


def run_block(
    run_dir: RunDir, stage: str, block: Block, fn: BlockFunction, shared: Any
) -> ItemError | None:
    """Compute one block and commit its tables; None, or why there are none."""
    try:
        found = fn(shared, block.spec)
        run_dir.commit(stage, block.benchmark, block.agent, block.item, found, block.input_hash)
    except Exception as error:  # any failure of the function is its block's
        return failure(error)
    return None


def storage(run_dir: RunDir, stage: str) -> Path:
    """Where Tune keeps its state of a sweep; nothing is ever read from it."""
    return run_dir.root / "tune" / files.safe_name(stage)


def _done(run_dir: RunDir, stage: str, block: Block) -> bool:
    return run_dir.is_done(stage, block.benchmark, block.agent, block.item, block.input_hash)


def _tune(
    run_dir: RunDir,
    stage: str,
    blocks: Sequence[Block],
    fn: BlockFunction,
    shared: Any,
    num_cpus: float,
    progress: Advances | None,
) -> dict[str, ItemError]:
    place = storage(run_dir, stage)
    shutil.rmtree(place, ignore_errors=True)  # an earlier sweep's; its results are parts
    with _settings(), _signals():
        from cluster import sweep_trial  # imports Ray Tune

        errors = sweep_trial.fit(
            place, run_dir, stage, blocks, fn, shared, num_cpus, RETRIES, progress
        )
    failed = {}
    for i, block in enumerate(blocks):
        if not _done(run_dir, stage, block):
            lost = ItemError("ray", "Ray Tune ended without running this block")
            failed[block.name(stage)] = errors.get(i, lost)
    return failed


@contextmanager
def _settings() -> Iterator[None]:
    """Tune's settings for the time of a sweep: it reads them from the environment only."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _signals() -> Iterator[None]:
    """Give back the handler of SIGUSR1, which Tune takes in the main thread and keeps."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGUSR1) is not before:
            signal.signal(signal.SIGUSR1, before)
