"""One made-up cell per session."""

from __future__ import annotations

from typing import Any

import made_rounds
import pytest

from sentinel.probes import Cell, cell_of


def make(n: int = 110, seed: int = 0, hidden: bool = True, **changes: Any) -> Cell:
    """A cell of the made-up world, with its hidden states."""
    tasks = made_rounds.tasks(n)
    made = [made_rounds.episode(t, "able", seed, wins=0.4) for t in tasks]
    cell = cell_of(
        [e for e, _ in made],
        {t["task_id"]: t for t in tasks},
        {e.episode_id: e.success for e, _ in made},
        benchmark="world",
        agent="able",
        dialect=made_rounds.MadeWorld.dialect,
        **changes,
    )
    if not hidden:
        return cell
    vectors = {(e.episode_id, r): v for e, many in made for r, v in enumerate(many, 1)}
    return cell.with_vectors(vectors, made_rounds.LAYER)


@pytest.fixture(scope="session")
def cell() -> Cell:
    return make()
