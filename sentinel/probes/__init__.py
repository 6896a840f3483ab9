"""Scorers of the abort cascade: who will fail, seen at each of the first rounds.

`fit_logistic` fits a probe as plain coefficients; `cell_of` lays out the episodes of one agent on
one benchmark, `score` scores them round by round under one scorer and mode, `table` writes the
`round_scores` that the cascade reads.

>>> from sentinel.probes import SCORERS
>>> SCORERS
('probe', 'surface', 'stacking', 'heads', 'tfidf', 'task', 'random')
"""

from sentinel.probes.cell import Cell, cell_of
from sentinel.probes.logistic import LogisticProbe, OneClass, fit_logistic
from sentinel.probes.parts import MODES, Split, split
from sentinel.probes.scorers import (
    CONTROLS,
    NEED_ACTIVATIONS,
    SCORERS,
    Scored,
    ScorerConfig,
    score,
)
from sentinel.probes.table import table

__all__ = [
    "CONTROLS",
    "MODES",
    "NEED_ACTIVATIONS",
    "SCORERS",
    "Cell",
    "LogisticProbe",
    "OneClass",
    "Scored",
    "ScorerConfig",
    "Split",
    "cell_of",
    "fit_logistic",
    "score",
    "split",
    "table",
]
