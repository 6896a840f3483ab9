"""Fits that several workers share, through Ray Train: each runs the same plain function.

An empty Ray Train run costs 9–16 s: heads that need one device are plain Ray tasks instead
(`cluster.head_stages.fold_part`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.head_stages import FoldItem, fold_part
from cluster.pool import RETRIES
from cluster.stages import check_importable, use_threads
from sentinel.errors import UserError
from sentinel.heads.config import HeadFailure

if TYPE_CHECKING:
    from sentinel.heads.strategy import Strategy


def fold_workers(item: FoldItem) -> dict[str, Any]:
    """`fold_part` of one item by its `workers`: `tables` and `metrics` of the first of them.

    Raises HeadFailure and UserError as `fold_part` does, RuntimeError for anything else.
    """
    return run_workers(_fold, item, item.workers, item.checkpoints, gpu=item.device == "cuda")


def run_workers(
    fn: Callable[[Any], Any], payload: Any, workers: int, scratch: Path, *, gpu: bool = False
) -> Any:
    """What `fn(payload)` returns in the first of `workers` processes of one `torch.distributed`
    group (NCCL on GPUs, one each; gloo on CPUs).

    `scratch` is a folder that every node sees; Ray Train's own files lie there meanwhile. A group
    that loses a process is started again, RETRIES times: `fn` goes on from its own checkpoints.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    check_importable(fn)
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"  # a relative path in a config stays one
    storage = Path(scratch) / f"ray-train-{uuid.uuid4().hex[:8]}"
    storage.mkdir(parents=True)
    trainer = TorchTrainer(
        _worker,
        train_loop_config={"fn": fn, "payload": payload},
        scaling_config=ScalingConfig(
            num_workers=workers,
            use_gpu=gpu,
            resources_per_worker={"CPU": 1, "GPU": 1} if gpu else {"CPU": 1},
        ),
        run_config=RunConfig(
            name="fit",
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=RETRIES),
        ),
    )
    try:
        found = trainer.fit().return_value
    except TrainingFailedError as error:
        raise RuntimeError(_cause(error)) from error
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    if "user" in found:
        raise UserError(*found["user"])
    if "failure" in found:
        raise HeadFailure(found["failure"])
    return found["value"]


def strategy_of(settings: Mapping[str, Any], device: str) -> Strategy:
    """This process's part of the open group, as the `heads` section says (`zero_stage`, `dtype`).

    Raises UserError where DeepSpeed is asked for and not installed.
    """
    from sentinel.heads.strategy import DataParallel

    if settings["zero_stage"] is None:
        return DataParallel(device, settings["dtype"])
    from cluster.deepspeed_strategy import DeepSpeed

    return DeepSpeed(settings["zero_stage"], device, settings["dtype"])


def check_deepspeed(stage: int | None) -> None:
    """Raise UserError where a fit would want DeepSpeed and this environment has none."""
    if stage is not None and find_spec("deepspeed") is None:
        raise UserError(
            f"heads.zero_stage={stage} needs DeepSpeed, which is not installed",
            "pip install 'sentinel-suite[train]', or set heads.zero_stage=null",
        )


def _fold(item: FoldItem) -> dict[str, Any]:
    device = "cpu"
    if item.device == "cuda":
        from ray.train.torch import get_device

        device = str(get_device())
    return fold_part(item, strategy_of(item.settings, device))


def _worker(call: dict[str, Any]) -> dict[str, Any]:
    """One process: what `fn` gave, or why it could not, as data: Ray Train would try it again."""
    import ray.train

    use_threads(1)
    try:
        value = call["fn"](call["payload"])
    except UserError as error:
        return {"user": (error.cause, error.remedy)}
    except HeadFailure as failure:
        return {"failure": str(failure)}
    return {"value": value if ray.train.get_context().get_world_rank() == 0 else None}


def _cause(error: BaseException) -> str:
    """The first worker's exception in one line, or Ray Train's own words."""
    failures = getattr(error, "worker_failures", None) or {}
    for rank in sorted(failures):
        text = " ".join(str(failures[rank]).split())
        return f"worker {rank} of a fit failed: {text[-400:]}"
    return " ".join(str(error).split())[:400]
