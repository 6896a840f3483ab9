"""Play a frozen cascade over finished episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentinel.cascade.table import Bools, Ints, Rounds
from sentinel.errors import UserError


@dataclass(frozen=True)
class Played:
    """Per episode: `gate` (E,) the round of the abort, 0 for none; `saved` (E,) cost saved."""

    gate: Ints
    saved: Ints

    @property
    def survives(self) -> Bools:
        """Episodes that run to their own end, (E,)."""
        return np.asarray(self.gate == 0)


def play(thresholds: Sequence[float | None], rounds: Rounds) -> Played:
    """Abort each episode at the first gate whose threshold its score exceeds.

    An abort at round r saves C − c_r: nothing on the last round, where it can still lose a success.
    """
    if len(thresholds) != rounds.gates:
        raise UserError(
            f"a cascade of {len(thresholds)} gates on a table of {rounds.gates}",
            "read the table with the policy's number of gates",
        )
    tau = np.array([np.inf if t is None else t for t in thresholds])
    hit = rounds.score > tau  # false for NaN
    aborted = hit.any(axis=1)
    first = hit.argmax(axis=1)
    saved = np.where(aborted, rounds.saved[np.arange(len(rounds)), first], 0)
    return Played(np.where(aborted, first + 1, 0).astype(np.int64), saved)


def outcome(played: Played, rounds: Rounds) -> dict[str, Any]:
    """Recall, savings and where the budget went; an undefined share is None.

    `gates`: per round the episodes alive at it, how many still run when it is read, how many it
    aborts, the successes among those, and the cost it saves.
    """
    survives, n, total = played.survives, rounds.successes, int(rounds.cost.sum())
    kept, saved = int((survives & rounds.success).sum()), int(played.saved.sum())
    rows = []
    for r in range(1, rounds.gates + 1):
        here = played.gate == r
        running = rounds.alive[:, r - 1] & ((played.gate == 0) | (played.gate >= r))
        rows.append(
            {
                "gate": r,
                "alive": int(rounds.alive[:, r - 1].sum()),
                "read": int(running.sum()),
                "aborted": int(here.sum()),
                "lost": int((here & rounds.success).sum()),
                "saved": int(played.saved[here].sum()),
            }
        )
    return {
        "episodes": len(rounds),
        "successes": n,
        "kept": kept,
        "recall": kept / n if n else None,
        "cost": total,
        "saved": saved,
        "savings": saved / total if total else None,
        "gates": rows,
    }
