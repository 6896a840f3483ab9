"""Structural baselines: masks of the same search table (the paper, "single-gate" and "uniform")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sentinel.cascade.search import Searched


def single_gate(searched: Searched) -> NDArray[np.intp]:
    """Candidates with at most one budget below 1, ascending; none where the grid lacks 1.

    G·(B − 1) + 1 of them: 31 on the default grid.
    """
    B, G = len(searched.grid), searched.gates
    if searched.grid[-1] != "1":
        return np.zeros(0, dtype=np.intp)
    top = B**G - 1  # every gate at its largest budget
    moves = [step * B ** (G - 1 - gate) for gate in range(G) for step in range(1, B)]
    return np.array(sorted([top, *(top - move for move in moves)]), dtype=np.intp)


def uniform(searched: Searched) -> NDArray[np.intp]:
    """The B candidates with one budget at every gate, ascending."""
    B, G = len(searched.grid), searched.gates
    step = sum(B**i for i in range(G))
    return np.arange(B, dtype=np.intp) * step
