"""A killed fit goes on to the same result; a damaged checkpoint stops it with its cause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shared_fit

from sentinel.heads.checkpoint import MANIFEST, signature
from sentinel.heads.config import HeadFailure

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SMALL = {"epochs": 3, "batch_size": 64, "dropout": 0.1}
"""Five steps an epoch, with a random state to restore."""


def test_a_fit_killed_in_mid_epoch_goes_on_to_the_same_scores(tmp_path: Path) -> None:
    settings = SMALL | {"checkpoints": str(tmp_path / "saved")}
    code = f"import shared_fit; shared_fit.shared_fit({settings | {'kill_at': (12, 0)}})"
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, timeout=240
    )
    assert done.returncode == -signal.SIGKILL
    assert [p.name for p in sorted((tmp_path / "saved").iterdir())] == ["epoch-0001", "epoch-0002"]
    resumed, whole = shared_fit.alone(**settings), shared_fit.alone(**SMALL)
    assert resumed["resumed"] == 2
    np.testing.assert_array_equal(resumed["logits"], whole["logits"])
    losses = [[e["loss"] for e in one["history"]] for one in (resumed, whole)]
    assert losses[0] == losses[1]
    assert resumed["losses"] == whole["losses"][10:]


def test_a_damaged_checkpoint_stops_the_fit_and_the_next_try_goes_on_before_it(
    tmp_path: Path,
) -> None:
    settings = SMALL | {"checkpoints": str(tmp_path / "saved")}
    whole = shared_fit.alone(**settings)
    state = tmp_path / "saved" / "epoch-0003" / "state.pt"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    with pytest.raises(HeadFailure, match=r"epoch-0003 is corrupt: state\.pt .*after epoch 2"):
        shared_fit.alone(**settings)
    again = shared_fit.alone(**settings)
    assert again["resumed"] == 2
    np.testing.assert_array_equal(again["logits"], whole["logits"])


@pytest.mark.parametrize("damage", ["manifest", "missing", "cut"])
def test_every_kind_of_damage_is_seen(tmp_path: Path, damage: str) -> None:
    settings = SMALL | {"epochs": 1, "checkpoints": str(tmp_path)}
    shared_fit.alone(**settings)
    place = tmp_path / "epoch-0001"
    if damage == "manifest":
        (place / MANIFEST).write_text("{")
    elif damage == "missing":
        (place / "random-0.pt").unlink()
    else:
        (place / "state.pt").write_bytes((place / "state.pt").read_bytes()[:-5])
    with pytest.raises(HeadFailure, match=r"is corrupt: .*begins anew"):
        shared_fit.alone(**settings)
    assert (tmp_path / "epoch-0001.corrupt").is_dir()


def test_checkpoints_of_another_fit_are_named_and_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SMALL | {"epochs": 1, "checkpoints": str(tmp_path)}
    shared_fit.alone(**settings)
    other = shared_fit.alone(**settings | {"learning_rate": 2e-3})
    assert other["resumed"] == 0
    assert "is of other data, settings or workers" in caplog.text


def test_a_fit_that_was_over_is_not_trained_again(tmp_path: Path) -> None:
    settings = SMALL | {"checkpoints": str(tmp_path)}
    whole, again = shared_fit.alone(**settings), shared_fit.alone(**settings)
    assert (again["resumed"], again["losses"]) == (3, [])
    np.testing.assert_array_equal(again["logits"], whole["logits"])
    progress = json.loads((tmp_path / "epoch-0003" / "progress.json").read_text())
    assert progress["history"] == whole["history"]


def test_a_signature_tells_arrays_apart() -> None:
    parts = [np.arange(3), np.arange(3.0), np.array(["a", "b"], dtype=object), {"a": 1}, "x"]
    assert len({signature([p]) for p in parts}) == len(parts)
    assert signature([np.arange(3)]) == signature([np.arange(3)])
