"""Training: seeded, on written tokens only, within the size that ships."""

from pathlib import Path

import numpy as np
import torch

from sentinel.nano import model as nano
from sentinel.nano.train import Example, Schedule, batches, collate, fit


def examples(n: int = 64) -> list[Example]:
    """Copy the heard number: [user, d, d, agent] → [d, d, end]."""
    generator = np.random.default_rng(0)
    made = []
    for a, b in generator.integers(10, 20, (n, 2)):
        ids = np.array([1, a, b, 2, a, b, 3])
        made.append(Example(ids, np.array([0, 0, 0, 0, 1, 1, 1], dtype=bool)))
    return made


def test_a_small_model_learns_to_copy_and_saves_within_its_size(tmp_path: Path) -> None:
    config = nano.nano_config(1024, 0, 3)
    model = nano.new_model(config, seed=0)
    one_step = Schedule(7 * 64, 0.01, batch_tokens=448)
    assert fit(model, examples(), one_step, threads=1) > 4
    assert fit(model, examples(), Schedule(7 * 64 * 60, 0.01, batch_tokens=448), threads=1) < 0.7
    nano.save(model, tmp_path, {"seed": 0})
    assert (tmp_path / "model.safetensors").stat().st_size <= nano.MAX_BYTES
    again = nano.load(tmp_path)
    ids = torch.tensor([[1, 12, 17, 2]])
    assert torch.allclose(again(ids).logits, model(ids).logits, atol=0.05)


def test_same_seed_same_weights() -> None:
    config = nano.nano_config(64, 0, 3)
    one, two = nano.new_model(config, 5), nano.new_model(config, 5)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    for model in (one, two):
        fit(model, examples(16), Schedule(2000, 0.01, batch_tokens=112, seed=2), threads=1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_batches_hold_every_example_once_per_epoch_and_mask_what_was_heard() -> None:
    made = examples(50)
    stream = batches(made, 70, seed=1)
    seen = [e for _ in range(5) for e in next(stream)]
    assert len(seen) == 50
    assert len({id(e) for e in seen}) == 50
    ids, targets = collate(made[:3])
    assert ids.shape == targets.shape == (3, 7)
    assert (targets[:, :4] == -100).all()
    assert (targets[:, 4:] == ids[:, 4:]).all()
