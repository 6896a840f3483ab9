"""The trial of a sweep as a Ray Tune trainable. Importing this module imports Ray Tune.

A class trainable whose actor is reused: a trial costs milliseconds, where a function trainable
starts a process of its own each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray._raylet
import ray.cloudpickle
from ray import tune
from ray.tune.experiment import Trial

from cluster import files
from cluster.pool import Advances, ItemError, failure
from cluster.run_dir import RunDir
from cluster.stages import use_threads
from cluster.sweep import Block, BlockFunction, run_block
from sentinel.errors import UserError


class BlockTrial(tune.Trainable):
    """One block per trial; `setup` runs once per actor, `reset_config` before each further one."""

    def setup(
        self,
        config: dict[str, Any],
        run_dir: RunDir,
        stage: str,
        blocks: Sequence[Block],
        fn: BlockFunction,
        shared: Any,
        threads: int,
    ) -> None:
        """Fetch what all blocks share."""
        use_threads(threads)
        self._run_dir, self._stage, self._blocks = run_dir, stage, blocks
        self._fn, self._shared = fn, shared

    def step(self) -> dict[str, Any]:
        """Compute and commit the block; a failure is a result, so that the actor lives on."""
        block = self._blocks[self.config["block"]]
        name = block.name(self._stage)
        # The dashboard's list of workers, and `ps`, show the block that runs. An actor's name is
        # fixed when it starts, and Ray has no public call for its title.
        ray._raylet.setproctitle(f"ray::{name}")
        print(name, flush=True)  # the actor's log
        return {
            "done": True,
            "fault": _plain(run_block(self._run_dir, self._stage, block, self._fn, self._shared)),
        }

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next block: nothing to undo."""
        return True


class _Listener(tune.Callback):
    """Progress, and the error of each trial that has one."""

    def __init__(self, progress: Advances | None) -> None:
        self.progress = progress
        self.errors: dict[int, ItemError] = {}

    def __reduce__(self) -> tuple[type[_Listener], tuple[None]]:
        # Tune stores its callbacks for a restore that never comes; a progress bar cannot be stored.
        return _Listener, (None,)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """The block was committed, or its function failed."""
        self._note(trial, _fault((trial.last_result or {}).get("fault")))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Its process died, more often than it is retried."""
        path = trial.pickled_error_file
        if path is None or not Path(path).exists():
            self._note(
                trial, ItemError("ray", "Ray Tune gave its trial up", trial.get_error() or "")
            )
        else:
            self._note(trial, failure(ray.cloudpickle.loads(Path(path).read_bytes())))

    def _note(self, trial: Trial, fault: ItemError | None) -> None:
        if fault is not None:
            self.errors[trial.config["block"]] = fault
        if self.progress is not None:
            self.progress.advance(1, failed=int(fault is not None))


def fit(
    place: Path,
    run_dir: RunDir,
    stage: str,
    blocks: Sequence[Block],
    fn: BlockFunction,
    shared: Any,
    num_cpus: float,
    retries: int,
    progress: Advances | None,
) -> dict[int, ItemError]:
    """Let Tune run one trial per block; returns errors by index. The parts are on disk."""
    listener = _Listener(progress)
    resources = tune.PlacementGroupFactory([{"CPU": num_cpus}])
    # The actors' class on the dashboard carries the name of the sweep.
    named = type(
        stage,
        (BlockTrial,),
        {
            "__module__": __name__,
            "__doc__": BlockTrial.__doc__,
            "default_resource_request": classmethod(lambda cls, config: resources),
        },
    )
    trainable = tune.with_parameters(
        named,
        run_dir=run_dir,
        stage=stage,
        blocks=list(blocks),
        fn=fn,
        shared=shared,
        threads=max(1, int(num_cpus)),
    )

    def name_of(trial: Trial) -> str:
        return blocks[trial.config["block"]].name(stage)

    def folder_of(trial: Trial) -> str:
        return f"{files.safe_name(name_of(trial))[:80]}-{trial.trial_id}"

    tuner = tune.Tuner(
        trainable,
        param_space={"block": tune.grid_search(list(range(len(blocks))))},
        tune_config=tune.TuneConfig(
            reuse_actors=True,
            trial_name_creator=name_of,
            trial_dirname_creator=folder_of,
        ),
        run_config=tune.RunConfig(
            name=place.name,
            storage_path=str(place.parent),
            verbose=0,
            callbacks=[listener],
            # A checkpoint at the end would be asked for by default; the parts are on disk.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            failure_config=tune.FailureConfig(max_failures=retries),
        ),
    )
    tuner.fit()
    return listener.errors


def _plain(error: ItemError | None) -> dict[str, str] | None:
    """An error as text: Tune keeps results as JSON."""
    if error is None:
        return None
    found = {"kind": error.kind, "cause": error.cause, "trace": error.trace}
    if isinstance(error.error, UserError):
        found |= {"user_cause": error.error.cause, "remedy": error.error.remedy}
    return found


def _fault(plain: dict[str, Any] | None) -> ItemError | None:
    if plain is None:
        return None
    error = UserError(plain["user_cause"], plain["remedy"]) if "remedy" in plain else None
    return ItemError(plain["kind"], plain["cause"], plain["trace"], error)
