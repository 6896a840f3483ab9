"""The abort cascade: gates at the first rounds that stop doomed episodes at a recall floor.

`from_table` checks and lays out a `round_scores` table, `fit_gates` makes thresholds from
calibration, `search` counts every budget vector at once, `choose` takes one, `chain` and `accept`
promise something about it; `draw` does all of it for one split, `cascade` for a table. Only numpy,
scipy and pyarrow are needed.

>>> from sentinel.cascade import CascadeConfig
>>> CascadeConfig.of(targets=[0.9, 0.95], mode="paper").targets
('0.9', '0.95')
"""

from sentinel.cascade.choose import choose, requirement
from sentinel.cascade.config import CascadeConfig
from sentinel.cascade.driver import cascade
from sentinel.cascade.fixed_sequence import accept, chain
from sentinel.cascade.gates import GRID, Thresholds, fit_gates
from sentinel.cascade.planner import plan
from sentinel.cascade.play import Played, outcome, play
from sentinel.cascade.policy import CascadePolicy
from sentinel.cascade.run import Draw, draw, rows, summary
from sentinel.cascade.search import Searched, search
from sentinel.cascade.table import Rounds, from_table

__all__ = [
    "GRID",
    "CascadeConfig",
    "CascadePolicy",
    "Draw",
    "Played",
    "Rounds",
    "Searched",
    "Thresholds",
    "accept",
    "cascade",
    "chain",
    "choose",
    "draw",
    "fit_gates",
    "from_table",
    "outcome",
    "plan",
    "play",
    "requirement",
    "rows",
    "search",
    "summary",
]
