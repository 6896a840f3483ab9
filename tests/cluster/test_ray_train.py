"""Fits through Ray Train and DeepSpeed, on CPUs over gloo: the numbers of one process."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shared_fit
from made_episodes import made_collection

import jobs.heads
import jobs.label
from cluster.pool import Cluster
from cluster.ray_train import run_workers
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel.errors import UserError
from sentinel.heads.config import HeadFailure

pytestmark = [
    pytest.mark.slow,
    # Ray Train opens a context of Ray Data, which warns of its own defaults.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
    pytest.mark.filterwarnings("ignore::UserWarning:ray.data.context"),
]
REDONE = ("correctness", 1)


def fails(kind: str) -> None:
    if kind == "user":
        raise UserError("the tokenizer has no padding token", "name another encoder")
    raise HeadFailure("the loss became nan in epoch 1")


EPOCHS = 3
STAGE_3 = {"zero_stage": 3, "micro_batch": 6}
STAGE_2 = {"zero_stage": 2, "dtype": "bfloat16", "epochs": EPOCHS}
KILLED = {"zero_stage": 2, "epochs": 4, "batch_size": 64}


@pytest.fixture(scope="module")
def fits(ray_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Four fits of one group of two: one whose worker is killed once, then ZeRO-3 twice, ZeRO-2.

    Starting processes is what costs here, so they start once, and once more after the kill.
    """
    if find_spec("deepspeed") is None:
        pytest.skip("needs DeepSpeed: make extras")
    folder = tmp_path_factory.mktemp("fits")
    once = {"kill_once": str(folder / "killed"), "kill_at": (12, 1)}  # within the third epoch
    saved = {"checkpoints": str(folder / "saved")}
    # Epochs are part of the schedule: the checkpoints of one are not those of three.
    wanted = [
        KILLED | once | {"checkpoints": str(folder / "whole")},
        STAGE_3 | saved | {"epochs": 1},
        STAGE_3 | saved | {"epochs": EPOCHS},
        STAGE_2,
    ]
    found = run_workers(shared_fit.fit_in_worker, {"fits": wanted}, 2, folder)
    assert (folder / "killed").exists()
    assert not list(folder.glob("ray-train*"))
    assert [one["resumed"] for one in found] == [2, 0, 0, 0]
    return found


@pytest.mark.timeout(600)
def test_zero_has_the_losses_of_plain_training(fits: list[dict[str, Any]]) -> None:
    _, _, stage_3, stage_2 = fits
    plain = shared_fit.alone(dtype="bfloat16", epochs=EPOCHS)
    assert len(plain["losses"]) == len(stage_2["losses"]) == 10 * EPOCHS
    np.testing.assert_allclose(stage_2["losses"], plain["losses"], rtol=1e-3)
    areas = [[e["stop_auroc"] for e in one["history"]] for one in (stage_2, plain)]
    np.testing.assert_allclose(*areas, atol=0.02)

    single = shared_fit.alone(epochs=EPOCHS)
    np.testing.assert_allclose(stage_3["losses"], single["losses"], rtol=1e-4)
    np.testing.assert_allclose(stage_3["logits"], single["logits"], atol=1e-3)
    assert not np.allclose(plain["losses"], single["losses"], rtol=1e-5)  # bfloat16 was used


def test_a_killed_worker_goes_on_from_the_last_epoch(fits: list[dict[str, Any]]) -> None:
    found, whole = fits[0], shared_fit.alone(epochs=4, batch_size=64)
    np.testing.assert_allclose(found["losses"], whole["losses"][10:], rtol=1e-4)
    np.testing.assert_allclose(found["logits"], whole["logits"], atol=1e-3)


@pytest.mark.timeout(600)
def test_a_head_of_two_workers_is_that_of_one(
    ray_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    run_dir = RunDir(tmp_path / "run")
    run_dir.prepare({})
    made_collection(run_dir)
    jobs.label.run(configured(1), run_dir, ray_cluster)
    jobs.heads.run(configured(1), run_dir, ray_cluster)
    one = run_dir.read("scores", "made", "steady").to_pylist()
    # How many workers there are is no part of what a finished fit depends on: one is done again.
    parts = run_dir.parts("heads", "made", "steady")
    (parts / "correctness-fold1.done.json").unlink()
    jobs.heads.run(configured(2), run_dir, ray_cluster)
    two = run_dir.read("scores", "made", "steady").to_pylist()

    lines = map(json.loads, run_dir.metrics_path.read_text().splitlines())
    fits = [m for m in lines if m.get("event") == "fit"]
    assert [m["workers"] for m in fits] == [1] * 12 + [2]
    assert (fits[-1]["item"], fits[-1]["strategy"]) == ("correctness-fold1", "data parallel")
    folder = run_dir.logs / "tensorboard" / "made" / "steady" / "correctness-fold1"
    assert len(list(folder.glob("events.*"))) == 2
    assert not list(parts.glob("checkpoints-*"))
    again = [(a, b) for a, b in zip(one, two, strict=True) if (a["head"], a["fold"]) == REDONE]
    assert again
    for a, b in zip(one, two, strict=True):
        assert {k: v for k, v in a.items() if k != "logit"} == {
            k: v for k, v in b.items() if k != "logit"
        }
        assert a["logit"] == pytest.approx(b["logit"], abs=1e-3)
    assert any(a["logit"] != b["logit"] for a, b in again)  # rounding: it was fitted by two
    assert all(a == b for a, b in zip(one, two, strict=True) if (a, b) not in again)


def test_more_workers_than_the_cluster_has_are_refused(
    ray_cluster: Cluster, tmp_path: Path
) -> None:
    run_dir = RunDir(tmp_path / "run")
    run_dir.prepare({})
    made_collection(run_dir)
    jobs.label.run(configured(3), run_dir, ray_cluster)
    with pytest.raises(UserError, match=r"heads.workers=3, and the cluster has 2 CPUs"):
        jobs.heads.run(configured(3), run_dir, ray_cluster)


def configured(workers: int) -> RunConfig:
    """One epoch of a very small head; two workers sum their gradients without DeepSpeed."""
    raw: dict[str, Any] = {
        "name": "mini",
        "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
        "agents": [{"name": "steady", "engine": "transformers", "model": "nano:steady"}],
        "heads": {
            "width": 32,
            "layers": 1,
            "epochs": 1,
            "dropout": 0.0,
            "validation": 0.2,
            "workers": workers,
            "zero_stage": None,
        },
    }
    return RunConfig.from_mapping(raw)


def test_causes_come_through(ray_cluster: Cluster, tmp_path: Path) -> None:
    # No workers is Ray Train in this process: the same way back, without starting any.
    with pytest.raises(UserError, match="no padding token; name another encoder"):
        run_workers(fails, "user", 0, tmp_path)
    with pytest.raises(HeadFailure, match="the loss became nan in epoch 1"):
        run_workers(fails, "failure", 0, tmp_path)
